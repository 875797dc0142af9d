//! `fedq volume …`

use super::{
    DONE, Session,
    age::age,
    args::{VolumeAdoptArgs, VolumeArgs, VolumeCommand, VolumeCreateArgs, VolumeDeleteArgs, VolumeListArgs},
    client::escape,
    error::CliError,
    list::{self, Row},
};
use fedq_wire::volume::{AdoptVolume, CreateVolume, Volume};

pub async fn run(command: VolumeCommand, session: &mut Session) -> Result<u8, CliError> {
    match command {
        VolumeCommand::Create(args) => create(args, session).await,
        VolumeCommand::Adopt(args) => adopt(args, session).await,
        VolumeCommand::List(args) => print_all(args, session).await,
        VolumeCommand::Show(args) => show(&args, session).await,
        VolumeCommand::Delete(args) => delete(&args, session).await,
    }
    .map(|()| DONE)
}

async fn create(args: VolumeCreateArgs, session: &mut Session) -> Result<(), CliError> {
    let (api, printer) = session.both()?;
    let VolumeCreateArgs { name, size, cluster, storage_class, access_modes, output } = args;
    let access_modes = (!access_modes.is_empty()).then_some(access_modes);
    let asked = CreateVolume { name, size, cluster, storage_class, access_modes };
    let volume: Volume = api.post("/volumes", &asked).await?;
    list::print_one(&volume, output, printer)
}

async fn adopt(args: VolumeAdoptArgs, session: &mut Session) -> Result<(), CliError> {
    let (api, printer) = session.both()?;
    let VolumeAdoptArgs { name, cluster, claim, read_only, output } = args;
    let asked = AdoptVolume { name, cluster, claim, read_only };
    let volume: Volume = api.post("/volume-adoptions", &asked).await?;
    list::print_one(&volume, output, printer)
}

async fn print_all(args: VolumeListArgs, session: &mut Session) -> Result<(), CliError> {
    let (api, printer) = session.both()?;
    let path = if args.all_users { "/volumes?allUsers=true" } else { "/volumes" };
    list::print(&api.list::<Volume>(path).await?, args.output, printer)
}

async fn show(args: &VolumeArgs, session: &mut Session) -> Result<(), CliError> {
    let (api, printer) = session.both()?;
    let volume: Volume = api.get(&format!("/volumes/{}", escape(&args.volume))).await?;
    list::print_one(&volume, args.output, printer)?;
    if let Some(reason) = &volume.reason {
        printer.note(reason);
    }
    Ok(())
}

async fn delete(args: &VolumeDeleteArgs, session: &mut Session) -> Result<(), CliError> {
    let (api, printer) = session.both()?;
    let path = format!("/volumes/{}", escape(&args.volume));
    if !args.force && printer.is_interactive() {
        let volume: Volume = api.get(&path).await?;
        let question = if volume.adopted {
            format!("Forget volume {}? Its PersistentVolumeClaim stays. [y/N]", volume.name)
        } else {
            format!("Delete volume {} with what is in it? [y/N]", volume.name)
        };
        let answer = printer.ask(&question).unwrap_or_default();
        if !matches!(answer.as_str(), "y" | "Y" | "yes") {
            return Err(CliError::Failed { message: "nothing was deleted".to_owned(), next: None });
        }
    }
    let volume: Volume = api.delete(&path).await?;
    let Volume { name, id, namespace, claim, .. } = &volume;
    printer.line(&if volume.adopted {
        format!("volume {name} ({id}) is forgotten; its PersistentVolumeClaim {namespace}/{claim} stays")
    } else {
        format!("volume {name} ({id}) is being deleted")
    })
}

impl Row for Volume {
    fn headers(wide: bool) -> &'static [&'static str] {
        const HEADERS: [&str; 12] = [
            "NAME", "ID", "STATE", "SIZE", "CLUSTER", "USER", "AGE", "USED BY", "CLASS", "MODES", "CLAIM",
            "ADOPTED",
        ];
        if wide { &HEADERS } else { HEADERS.split_at(8).0 }
    }

    fn rows(&self, wide: bool) -> Vec<Vec<String>> {
        let mut row = vec![
            self.name.clone(),
            self.id.clone(),
            self.state.clone(),
            self.size.clone(),
            self.cluster.clone().unwrap_or_default(),
            self.user.clone(),
            age(self.created),
            self.used_by.join(","),
        ];
        if wide {
            let class = self.storage_class.clone().unwrap_or_default();
            let adopted = match (self.adopted, self.read_only) {
                (false, _) => "",
                (true, false) => "yes",
                (true, true) => "read-only",
            };
            let claim = format!("{}/{}", self.namespace, self.claim);
            row.extend([class, self.access_modes.join(","), claim, adopted.to_owned()]);
        }
        vec![row]
    }

    fn name(&self) -> String {
        format!("volume/{}", self.id)
    }
}
