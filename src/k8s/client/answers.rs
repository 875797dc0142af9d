//! That a server which failed answers again.

use std::{sync::Mutex, time::Duration};

use tokio::{sync::watch, time::Instant};

/// Shared by all that ask one cluster: its followed kinds, its writers, its probe. Each waits for a time of its own after a
/// failure, the longer the more often it failed; once one of them finds that the server is back, they all try again.
#[derive(Default)]
pub struct Answers {
    told: watch::Sender<()>,
    last: Mutex<Option<Instant>>,
}

impl Answers {
    /// Where each other request fails, those that succeed must not take all pauses from those that do not.
    const PAUSE: Duration = Duration::from_secs(2);

    /// The server has answered.
    pub fn tell(&self) {
        let now = Instant::now();
        let mut last = self.last.lock().expect("no code panics while holding this lock");
        if last.is_none_or(|last| Self::PAUSE <= now.duration_since(last)) {
            *last = Some(now);
            self.told.send_replace(());
        }
    }

    /// Waits until it is told, from now on.
    pub async fn heard(&self) {
        let told = self.listen().changed().await;
        told.expect("the sender is in here");
    }

    /// For who must miss nothing that is told between two waits.
    pub fn listen(&self) -> watch::Receiver<()> {
        self.told.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::*;

    #[tokio::test]
    async fn what_fails_again_and_again_is_not_brought_back_at_each_answer() {
        let answers = Answers::default();
        let heard = async {
            let mut count = 0;
            while timeout(Duration::from_millis(50), answers.heard()).await.is_ok() {
                count += 1;
            }
            count
        };
        let told = async {
            for _ in 0..10 {
                tokio::task::yield_now().await;
                answers.tell();
            }
        };
        assert_eq!(tokio::join!(heard, told).0, 1);
    }
}
