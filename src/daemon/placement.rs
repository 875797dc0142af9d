//! Wiring of what decides which clusters are used: inventory and Placements.

use std::sync::Arc;

use tokio::sync::Notify;

use super::Daemon;
use fedq_controllers::{context::Context, inventory, placement};
use fedq_k8s::{follow::Following, hub::profiles::Profiles};

impl Daemon {
    /// Quota and capacity do not look at OCM's kinds, so these do not wake them.
    pub(super) fn start_placement(
        &mut self,
        context: &Context,
        inventory_signal: Arc<Notify>,
        checks: &Arc<Notify>,
    ) -> anyhow::Result<()> {
        let (hub, signal) = (&context.hub, Arc::new(Notify::new()));
        let mut changed = [&signal, &inventory_signal, checks].map(Arc::clone).to_vec();
        changed.extend(self.dispatch_signal());
        let following = Following::new(hub.client.clone(), self.timing(), changed);
        hub.ocm.follow(&following, &mut self.follows, &self.cancel);
        let settings = placement::Settings { evaluate: self.config.placement.evaluate };
        let view = self.published.placements.clone();
        let placements = placement::PlacementController::new(context.clone(), settings, view, signal);
        self.tasks.spawn(placements.run());

        let inputs = inventory::Inputs {
            joined: self.published.joined.subscribe(),
            capacity: self.published.capacity.subscribe(),
        };
        let settings = self.inventory_settings()?;
        let inventory =
            inventory::InventoryController::new(context.clone(), settings, inputs, inventory_signal);
        self.tasks.spawn(inventory.run());
        Ok(())
    }

    /// Where fedq nominates, it looks at all that checks are answered by, and at the workers' queues.
    pub(super) fn dispatch_signal(&self) -> Option<Arc<Notify>> {
        self.config.multikueue.dispatcher.then(|| Arc::clone(&self.published.dispatch_signal))
    }

    /// What joins clusters besides Secrets.
    pub(super) fn profiles(&self) -> Option<Profiles> {
        let config = &self.config.clusters.profiles;
        config.enabled.then(|| Profiles::new(&self.config.namespace, &config.managed_service_account))
    }

    fn inventory_settings(&self) -> anyhow::Result<inventory::Settings> {
        let config = &self.config.placement;
        let scores = inventory::ScoreSettings {
            measures: self.config.measures()?,
            valid_for: config.scores.valid_for,
        };
        Ok(inventory::Settings {
            clusters: config.inventory,
            scores: config.scores.enabled.then_some(scores),
            aliases: self.config.aliases(),
        })
    }
}
