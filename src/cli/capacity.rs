//! `fedq capacity`.

use super::{
    DONE, Session,
    age::age,
    args::CapacityArgs,
    client::escape,
    error::CliError,
    list::{self, Row},
    table::Table,
};
use fedq_values::amount::amount;
use fedq_wire::{
    capacity::{Capacity, CapacityChange},
    cluster::Flavor,
    list::List,
    quantity::Quantity,
};

pub async fn run(args: CapacityArgs, session: &mut Session) -> Result<u8, CliError> {
    let Some(cluster) = args.cluster else {
        return list::run::<Capacity>("/capacity", &args.list, session).await.map(|()| DONE);
    };
    if args.history {
        let (api, printer) = session.both()?;
        let path = format!("/capacity/{}/history?limit=100", escape(&cluster));
        let changes: List<CapacityChange> = api.get(&path).await?;
        list::print(&changes.items, args.list.output, printer)?;
        return Ok(DONE);
    }
    // So that a wrong name is told apart from a cluster without nodes.
    session.api()?.get::<serde_json::Value>(&format!("/clusters/{}", escape(&cluster))).await?;
    let wanted = |row: &Capacity| row.cluster == cluster;
    list::run_filtered::<Capacity>("/capacity", &args.list, session, wanted).await?;
    Ok(DONE)
}

impl Row for Capacity {
    fn headers(_wide: bool) -> &'static [&'static str] {
        &["CLUSTER", "STATE", "FLAVOR", "RESOURCE", "CAPACITY", "ASSIGNED", "LEFT"]
    }

    fn rows(&self, _wide: bool) -> Vec<Vec<String>> {
        let row = [&self.cluster, &self.state, &self.flavor, &self.resource];
        let amounts = [&self.assigned, &self.unassigned];
        let amounts = amounts.into_iter().map(|of| amount(&self.resource, &of.0));
        let capacity = present(&self.resource, &self.capacity, self.coming.as_ref());
        vec![row.into_iter().cloned().chain([capacity]).chain(amounts).collect()]
    }

    fn name(&self) -> String {
        format!("capacity/{}/{}/{}", self.cluster, self.flavor, self.resource)
    }
}

impl Row for CapacityChange {
    fn headers(wide: bool) -> &'static [&'static str] {
        if wide {
            return &["TIME", "FLAVOR", "RESOURCE", "CAPACITY", "USABLE"];
        }
        &["AGE", "FLAVOR", "RESOURCE", "CAPACITY", "USABLE"]
    }

    fn rows(&self, wide: bool) -> Vec<Vec<String>> {
        let at = if wide { self.at.to_string() } else { age(self.at) };
        let text =
            |of: &Option<Quantity>| of.as_ref().map_or("gone".to_owned(), |of| amount(&self.resource, &of.0));
        let (capacity, usable) = (text(&self.capacity), text(&self.usable));
        vec![vec![at, self.flavor.clone(), self.resource.clone(), capacity, usable]]
    }

    fn name(&self) -> String {
        format!("capacity/{}/{}/{}", self.cluster, self.flavor, self.resource)
    }
}

/// What is there, and what could come.
fn present(resource: &str, capacity: &Quantity, coming: Option<&Quantity>) -> String {
    let capacity = amount(resource, &capacity.0);
    match coming {
        Some(coming) => format!("{capacity} (+{} could come)", amount(resource, &coming.0)),
        None => capacity,
    }
}

/// What one cluster has, by flavor.
pub fn flavors_table(flavors: &[Flavor]) -> Table {
    let mut table = Table::new(&["FLAVOR", "RESOURCE", "CAPACITY", "ASSIGNED", "LEFT"]);
    for flavor in flavors {
        for (resource, capacity) in &flavor.capacity {
            let of = |amounts: &fedq_wire::quantity::Quantities| {
                amounts.get(resource).map_or_else(|| "0".to_owned(), |of| amount(resource, &of.0))
            };
            let (assigned, left) = (of(&flavor.assigned), of(&flavor.unassigned));
            let capacity = present(resource, capacity, flavor.coming.get(resource));
            table.row([&flavor.name, resource, &capacity, &assigned, &left]);
        }
    }
    table
}
