//! What fedqd tells the service manager that started it, as systemd listens.

use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::bed::{Bed, WITHIN};
use super::tasks::stage::wrong;

/// A fedqd that is told to show that it lives twice as often as this.
const WATCHDOG: Duration = Duration::from_millis(200);

/// The socket that a service manager listens at.
struct Manager(UnixDatagram);

impl Manager {
    fn listen(bed: &Bed) -> Self {
        let socket = UnixDatagram::bind(bed.path("notify.socket")).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        Self(socket)
    }

    fn environment(bed: &Bed) -> [(&'static str, String); 2] {
        let socket = bed.path("notify.socket").display().to_string();
        [("NOTIFY_SOCKET", socket), ("WATCHDOG_USEC", WATCHDOG.as_micros().to_string())]
    }

    /// The next message, if there is one already or soon.
    fn next(&self) -> Option<String> {
        let mut message = [0; 4096];
        let length = self.0.recv(&mut message).ok()?;
        Some(String::from_utf8(message[..length].to_vec()).unwrap())
    }

    /// All messages up to the one that has this line.
    async fn until(&self, line: &str) -> Vec<String> {
        let (mut told, began) = (Vec::new(), Instant::now());
        loop {
            if let Some(message) = self.next() {
                let is_it = message.lines().any(|found| found == line);
                told.push(message);
                if is_it {
                    return told;
                }
            }
            assert!(began.elapsed() < WITHIN, "no {line} after {told:?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn has(told: &[String], line: &str) -> usize {
    told.iter().flat_map(|message| message.lines()).filter(|found| *found == line).count()
}

/// The status of an answer of this start of fedqd's probe.
async fn ready(bed: &Bed) -> String {
    let log = bed.log();
    let told = log.split("Metrics are on http://").last().expect("fedqd listens");
    let mut stream = tokio::net::TcpStream::connect(told.split("/metrics").next().unwrap()).await.unwrap();
    stream.write_all(b"GET /readyz HTTP/1.0\r\n\r\n").await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text.lines().next().unwrap_or_default().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_is_ready_once_it_serves_lives_and_says_that_it_stops() {
    let mut bed = Bed::without_daemon(&["one"]).await;
    bed.configure("");
    let manager = Manager::listen(&bed);
    wrong(&bed.hub, "list clusterqueues: forbidden");
    bed.start_daemon_with(&Manager::environment(&bed));
    let mut early = manager.until("WATCHDOG=1").await;
    bed.logs("The API listens on", 1).await;
    for _ in 0..5 {
        early.extend(manager.until("WATCHDOG=1").await);
    }
    assert_eq!((has(&early, "READY=1"), has(&early, "STOPPING=1")), (0, 0), "{early:?}");
    assert!(early.iter().any(|message| message.contains("STATUS=Waits for the hub")), "{early:?}");
    assert!(ready(&bed).await.contains("503"), "its queues are not known");

    wrong(&bed.hub, "");
    manager.until("READY=1").await;
    assert!(ready(&bed).await.contains("200"));
    let began = Instant::now();
    for _ in 0..10 {
        manager.until("WATCHDOG=1").await;
    }
    assert!(
        began.elapsed() < WATCHDOG * 10,
        "half of the time is left for a late one: {:?}",
        began.elapsed()
    );

    bed.stop().await;
    let last = manager.until("STOPPING=1").await;
    assert_eq!(has(&last, "READY=1"), 0, "{last:?}");
    let mut rest = Vec::new();
    while let Some(message) = manager.next() {
        rest.push(message);
    }
    assert_eq!(has(&rest, "READY=1"), 0, "{rest:?}");
}

/// In a pod nobody listens, and where the socket is gone, only the log says so.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_listener_it_runs_all_the_same() {
    let mut bed = Bed::without_daemon(&[]).await;
    bed.configure("");
    bed.start_daemon_with(&Manager::environment(&bed));
    bed.logs("The service manager is not told", 1).await;
    bed.logs("The API listens on", 1).await;
    bed.stop().await;
    let quiet = bed.log().len();
    bed.start_daemon();
    bed.logs("The API listens on", 2).await;
    bed.stop().await;
    assert!(!bed.log()[quiet..].contains("service manager"), "nobody asked");
}
