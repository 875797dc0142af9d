//! What `fedq demo --serve` says before it waits.

use super::{
    DemoError,
    screen::Screen,
    stage::{self, Stage},
};

/// Lines to paste in another shell; what is between `#` and the end of a line explains it.
const COMMANDS: &str = "
  # What there is
  fedq quota list
  fedq claim show frankfurt-resource-claim
  fedq quota explain research
  kubectl get crc -o wide
  kubectl --context frankfurt get clusterqueues,localqueues,workloads,jobs,pods -A

  # Submit work on the hub: vision has 16 GPUs on oregon and 16 on tokyo, and the Job wants 8
  kubectl create -f \"$FEDQ_DEMO/job.yaml\"
  kubectl get workloads -A
  kubectl --context oregon -n vision get pods

  # Hand in a task, in SkyPilot's YAML; what each cluster says to it, and where it is
  fedq task submit \"$FEDQ_DEMO/task.yaml\" --dry-run
  fedq task submit \"$FEDQ_DEMO/task.yaml\" --detach
  fedq task list
  fedq task stop --all --yes

  # Share a cluster out anew: by a command, in your editor, or with kubectl
  fedq claim assign tokyo-resource-claim --queue vision --flavor a100 gpu=24
  fedq claim edit oregon-resource-claim
  kubectl edit crc oregon-resource-claim
  fedq claim history tokyo-resource-claim

  # Take nodes away, bring them back, and see the quotas follow (-w keeps looking)
  kubectl --context oregon cordon a100-2
  fedq quota list -w
  kubectl --context oregon uncordon a100-2

  # Cut a cluster off, and bring it back: Stale after 10 s, off the hub after a minute
  touch \"$FEDQ_DEMO/tokyo.off\"
  fedq cluster list -w
  rm \"$FEDQ_DEMO/tokyo.off\"

  # Send nothing new to a cluster; what may be wrong with it; let it go
  fedq cluster cordon frankfurt
  fedq cluster uncordon frankfurt
  fedq check oregon
  fedq cluster leave oregon --yes
";

pub async fn explain(stage: &Stage, screen: &mut Screen) -> Result<(), DemoError> {
    screen.chapter("Your turn").await?;
    let folder = stage.folder();
    let (page, token) = &stage.page;
    // The token is one of a hub that ends with this process, and whoever reads this has it in the folder as well.
    screen.say("All of this stays up until Ctrl-C. In a browser:")?;
    screen.output(&format!("\n  {page}\n  log in with the token {token}\n\n"))?;
    screen.say("In another shell, read this first, and then try:")?;
    let environment = stage::quoted(&folder.join(stage::ENVIRONMENT));
    screen.output(&format!("\n  . {environment}\n{COMMANDS}\n"))?;
    screen.say(&format!("fedqd's log is in {}.", folder.join(stage::LOG).display()))
}
