//! Tells the service manager that started fedqd, by sd_notify(3), when it is ready, that it lives, and that it stops.
//! Where nobody asked for that (`NOTIFY_SOCKET` is not set), as in a pod, all of it does nothing.

use sd_notify::NotifyState;
use tokio::{sync::watch, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::warn;

/// Until what it returns is dropped. `ready`: as `/readyz`.
pub(super) fn tell(ready: watch::Receiver<bool>, stop: CancellationToken) -> JoinSet<()> {
    let mut telling = JoinSet::new();
    telling.spawn(tell_of_states(ready, stop));
    if let Some(period) = sd_notify::watchdog_enabled().filter(|period| !period.is_zero()) {
        // As systemd advises: so a late one is no missing one.
        let mut beats = tokio::time::interval(period / 2);
        telling.spawn(async move {
            loop {
                beats.tick().await;
                notify(&[NotifyState::Watchdog]);
            }
        });
    }
    telling
}

async fn tell_of_states(mut ready: watch::Receiver<bool>, stop: CancellationToken) {
    notify(&[NotifyState::Status("Waits for the hub, to plan for the first time")]);
    // An error: whoever could become ready is gone, and the end of all is near.
    if let Some(Ok(_)) = stop.run_until_cancelled(ready.wait_for(|ready| *ready)).await {
        notify(&[NotifyState::Ready, NotifyState::Status("Follows the hub and its clusters")]);
    }
    stop.cancelled().await;
    notify(&[NotifyState::Stopping, NotifyState::Status("Finishes what is under way")]);
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!("The service manager is not told {states:?}: {error}");
    }
}
