//! `fedq` as people use it, against the daemon's API on the hub's own rights.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::stage::{Assign, CLAIM, CLAIMS, FEDQD, GPU, SOON, Stage, claim_name, ground, holds, queue};
use crate::support::audit::Request;
use crate::support::cluster::id;
use crate::support::control_plane::base64;
use crate::support::daemon::{Ran, cli};
use crate::support::fleet::Fleet;
use crate::support::nodes::node;

/// Someone at a terminal: their token, and a folder for what their editor keeps.
pub struct Person<'s, 'f> {
    stage: &'s Stage<'f>,
    token: String,
}

impl<'s, 'f> Person<'s, 'f> {
    /// A ServiceAccount with a ClusterRole of the hub, or with no rights at all.
    pub async fn new(stage: &'s Stage<'f>, name: &str, role: Option<&str>) -> Result<Self> {
        let (hub, namespace) = (stage.hub(), stage.namespace());
        hub.apply(&format!(
            "{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: {name}, namespace: {namespace}}}}}"
        ))
        .await?;
        if let Some(role) = role {
            let binding = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": format!("{namespace}-{name}")},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
            });
            hub.apply_object("fedq-test", binding).await?;
        }
        let token =
            hub.kubectl(&["create", "token", name, "--namespace", &namespace, "--audience", "fedq"])?;
        Ok(Self { stage, token: token.trim().to_owned() })
    }

    pub fn token(&self) -> &str {
        &self.token
    }

    /// As clients send it for `http://anyone:TOKEN@host`.
    pub fn basic(&self) -> String {
        let pair = base64(format!("anyone:{}", self.token).as_bytes());
        format!("Basic {}", pair.as_str().unwrap_or_default())
    }

    pub fn runs(&self, args: &[&str]) -> Result<Ran> {
        self.edits("true", args)
    }

    fn edits(&self, editor: &str, args: &[&str]) -> Result<Ran> {
        let home = &self.stage.daemon.home().dir;
        let folder = home.display().to_string();
        let mut env =
            vec![("FEDQ_SERVER", self.stage.server.as_str()), ("KUBE_EDITOR", editor), ("TMPDIR", &folder)];
        if !self.token.is_empty() {
            env.push(("FEDQ_TOKEN", &self.token));
        }
        cli(self.stage.fleet, self.stage.case, &env, args)
    }
}

pub async fn a_claim_is_edited_with_checks_and_on_top_of_other_edits(fleet: &Fleet) -> Result<()> {
    let case = "edit";
    let stage = Stage::set(fleet, "a_claim_is_edited_with_checks_and_on_top_of_other_edits", case).await?;
    let (hub, worker) = (stage.hub(), fleet.worker1());
    worker.add_nodes(&[node(case, "a").gpus(8)]).await?;
    hub.apply(&ground(case)).await?;
    for name in ["edit-a", "edit-b"] {
        hub.apply(&queue(case, name, &[(GPU, "0")], "")).await?;
    }
    stage.join("edit-one", worker).await?;
    let give = [
        Assign { queue: "edit-a", flavor: case, resources: &[("gpu", "4")] },
        Assign { queue: "edit-b", flavor: case, resources: &[("gpu", "1")] },
    ];
    stage.assign("edit-one", &give).await?;
    let name = claim_name("edit-one");
    hub.wait(id(CLAIMS, CLAIM, &name), "its capacity", SOON, |claim| {
        claim["spec"]["nominalResources"]["gpu"] == "8"
    })
    .await?;
    for (queue, gpus) in [("edit-a", "4"), ("edit-b", "1")] {
        holds(hub, queue, case, &[(GPU, gpus)]).await?;
    }
    let boss = Person::new(&stage, "boss", Some("cluster-admin")).await?;
    let script = |name: &str, text: &str| -> Result<String> {
        Ok(format!("sh {}", stage.daemon.home().file(name, text)?.display()))
    };

    let set = |queue: &str, gpus: &str| {
        format!("sed -i '/clusterQueueName: {queue}/,/gpu:/ s/gpu:.*/gpu: \"{gpus}\"/' \"$1\"\n")
    };
    let editor = script("valid", &set("edit-a", "3"))?;
    let ran = boss.edits(&editor, &["claim", "edit", &name, "--yes"])?;
    ensure!(ran.code == 0 && ran.stderr.contains("edit-a") && ran.stderr.contains("-1"), "{ran:?}");
    holds(hub, "edit-a", case, &[(GPU, "3")]).await?;

    // A cap of 7; the first attempt breaks it, the text comes back with the reason, the second is right.
    let text = format!(
        "if grep -q '^# !' \"$1\"; then cp \"$1\" \"$HOME/reopened\"; {}else {}\
         sed -i '/nominalResources:/,/gpu:/ s/gpu:.*/gpu: \"7\"/' \"$1\"; fi\n",
        set("edit-a", "5"),
        set("edit-a", "9"),
    );
    let editor = script("greedy", &text)?;
    let ran = boss.edits(&editor, &["claim", "edit", &name, "--yes"])?;
    ensure!(ran.code == 0, "{ran:?}");
    let home = fleet.scratch(case)?.join("home");
    let reopened = std::fs::read_to_string(home.join("reopened"))?;
    for word in ["10", "7", "3"] {
        ensure!(reopened.lines().take(2).any(|line| line.contains(word)), "{word}: {reopened}");
    }
    holds(hub, "edit-a", case, &[(GPU, "5")]).await?;

    // While one edits, another changes the other queue: both edits are in the claim afterwards.
    let text = format!(
        "[ -e \"$HOME/other\" ] || {{ touch \"$HOME/other\"; '{}' claim assign {name} --queue edit-b --flavor {case} gpu=2; }}\n\
{}",
        env!("CARGO_BIN_EXE_fedq"),
        set("edit-a", "4")
    );
    let editor = script("meanwhile", &text)?;
    let ran = boss.edits(&editor, &["claim", "edit", &name, "--yes"])?;
    ensure!(ran.code == 0 && ran.stderr.contains("Somebody else changed the claim meanwhile"), "{ran:?}");
    for (queue, gpus) in [("edit-a", "4"), ("edit-b", "2")] {
        holds(hub, queue, case, &[(GPU, gpus)]).await?;
    }

    let history = boss.runs(&["claim", "history", &name])?.success()?;
    ensure!(history.contains("boss"), "nobody is named: {history}");
    let explained = boss.runs(&["quota", "explain", "edit-a"])?.success()?;
    ensure!(explained.contains("edit-one") && explained.contains('4'), "{explained}");
    let shown = boss.runs(&["claim", "show", &name, "--output", "yaml"])?.success()?;
    let file = stage.daemon.home().file("wanted.yaml", &shown)?;
    let same = boss.runs(&["claim", "diff", "--filename", &file.display().to_string()])?;
    ensure!(same.code == 0, "{same:?}");
    Ok(())
}

pub async fn the_command_line_joins_checks_and_leaves(fleet: &Fleet) -> Result<()> {
    let case = "cli";
    let stage = Stage::set(fleet, "the_command_line_joins_checks_and_leaves", case).await?;
    let (hub, one, two) = (stage.hub(), fleet.worker1(), fleet.worker2());
    hub.apply(&ground(case)).await?;
    hub.apply(&queue(case, "cli-queue", &[(GPU, "0")], "")).await?;
    for worker in [one, two] {
        worker.add_nodes(&[node(case, "a").gpus(8)]).await?;
    }
    let boss = Person::new(&stage, "boss", Some("cluster-admin")).await?;
    let home = stage.daemon.home();
    let first = home.file("one.kubeconfig", &one.kubeconfig_for(FEDQD, &["system:masters"])?)?;
    let second = home.file("two.kubeconfig", &two.kubeconfig)?;
    let joined = boss.runs(&["cluster", "join", "cli-one", "--kubeconfig", &first.display().to_string()])?;
    ensure!(joined.code == 0 && joined.stdout.contains("gpu 8"), "{joined:?}");
    let second = second.display().to_string();
    let joined =
        boss.runs(&["cluster", "join", "cli-two", "--kubeconfig", &second, "--create-serviceaccount"])?;
    ensure!(joined.code == 0 && joined.stdout.contains("gpu 8"), "{joined:?}");

    let mark = two.mark()?;
    for name in ["cli-one", "cli-two"] {
        let claim = claim_name(name);
        let given =
            boss.runs(&["claim", "assign", &claim, "--queue", "cli-queue", "--flavor", case, "gpu=3"])?;
        ensure!(given.code == 0, "{given:?}");
    }
    holds(hub, "cli-queue", case, &[(GPU, "6")]).await?;
    let asked = two.requests_since(mark)?;
    let of_fedq = || asked.iter().filter(|one| one.user == "system:serviceaccount:fedq-system:fedq");
    ensure!(of_fedq().any(Request::is_write), "the ServiceAccount wrote nothing: {asked:#?}");
    ensure!(of_fedq().all(|one| one.code != 403), "it lacks rights: {:#?}", of_fedq().collect::<Vec<_>>());

    let list = boss.runs(&["cluster", "list"])?.success()?;
    ensure!(list.contains("cli-one") && list.contains("cli-two"), "{list}");
    let checked = boss.runs(&["check", "cli-two"])?;
    ensure!(!checked.stdout.is_empty() && !checked.stdout.contains("failed"), "{checked:?}");
    let left = boss.runs(&["cluster", "leave", "cli-two", "--yes"])?;
    ensure!(left.code == 0, "{left:?}");
    holds(hub, "cli-queue", case, &[(GPU, "3")]).await
}

pub async fn nobody_gets_further_than_the_hub_lets_them(fleet: &Fleet) -> Result<()> {
    let case = "deny";
    let stage = Stage::set(fleet, "nobody_gets_further_than_the_hub_lets_them", case).await?;
    stage.assign("deny-one", &[]).await?;
    let name = claim_name("deny-one");
    stage.claim_says("deny-one", "Resolved", "False", "ClusterNotFound").await?;
    let guest = Person::new(&stage, "guest", None).await?;
    let reader = Person::new(&stage, "reader", Some("view-claims")).await?;
    stage
        .hub()
        .apply(
            "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: view-claims}, rules: \
             [{apiGroups: [galaxy.kubestellar.io], resources: [clusterresourceclaims], verbs: [get, list, watch]}]}",
        )
        .await?;

    let without = Person { stage: &stage, token: String::new() }.runs(&["claim", "list"])?;
    ensure!(without.code != 0 && without.stderr.contains("logged in"), "{without:?}");
    let wrong = Person { stage: &stage, token: "wrong".to_owned() }.runs(&["claim", "list"])?;
    ensure!(wrong.code != 0 && wrong.stderr.contains("not valid"), "{wrong:?}");
    let denied = guest.runs(&["claim", "list"])?;
    ensure!(denied.code != 0 && denied.stderr.contains("guest"), "{denied:?}");
    ensure!(denied.stderr.contains("cannot list"), "{denied:?}");
    // Rights of a role that was bound before it was there need a moment.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let listed = reader.runs(&["claim", "list"])?;
    ensure!(listed.code == 0 && listed.stdout.contains("deny-one"), "{listed:?}");
    let denied = reader.runs(&["claim", "assign", &name, "--queue", "q", "--flavor", "f", "gpu=1"])?;
    ensure!(denied.code != 0 && denied.stderr.contains("clusterresourceclaims"), "{denied:?}");
    ensure!(denied.stderr.contains("cannot") && denied.stderr.contains("reader"), "{denied:?}");
    Ok(())
}
