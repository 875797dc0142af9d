//! Which of a claim's texts is in force, where an invalid one replaced texts that fedqd may not have read.
//!
//! fedqd reads claims as they stand. A valid text that was gone again before it was read was never in force; one that
//! fedqd said it accepts must be, whatever happens after that.

use std::time::{Duration, Instant};

use serde_json::Value;
use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

use super::super::bed::WITHIN;
use super::stage::{GPU, QUEUES, Stage, claim_name, condition_of};
use super::truth::Amounts;

/// Of one worker's claim: the valid texts since the last one that fedqd is known to have read, that one first.
#[derive(Debug)]
pub struct Texts(Vec<Text>);

#[derive(Debug)]
struct Text {
    generation: i64,
    asks: Amounts,
}

fn generation(claim: &Value) -> i64 {
    claim["metadata"]["generation"].as_i64().expect("a generation")
}

impl Texts {
    pub fn new(asks: Amounts) -> Self {
        Self(vec![Text { generation: 0, asks }])
    }

    pub fn is_one(&self) -> bool {
        self.0.len() == 1
    }

    /// The claim as it stands after an edit.
    pub fn add(&mut self, claim: &Value, asks: Amounts) {
        self.0.push(Text { generation: generation(claim), asks });
    }

    /// Forgets the texts before the one that fedqd says it accepted. To be asked before each edit.
    pub fn forget_earlier(&mut self, claim: &Value) {
        let accepted = condition_of(claim, "Accepted");
        let read = accepted["observedGeneration"].as_i64().filter(|_| accepted["status"] == "True");
        let last = self.0.iter().rposition(|text| read.is_some_and(|read| text.generation <= read));
        self.0.drain(..last.unwrap_or_default());
    }

    /// What fedqd has stored once it has read the text that is not valid.
    #[expect(clippy::panic, reason = "a walk fails by it")]
    pub async fn in_force(&mut self, stage: &Stage, which: usize) -> Amounts {
        let worker = &stage.bed.workers[which];
        let began = Instant::now();
        let asks = loop {
            let claim = stage.hub().get("ClusterResourceClaim", "", &claim_name(worker)).expect("its claim");
            let read = stored(stage, &worker.state.name).await;
            if let Some((seen, asks)) = read
                && seen == Some(generation(&claim))
            {
                break asks;
            }
            assert!(began.elapsed() < WITHIN, "{read:?} is stored, and this not read: {claim}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        let text = self.0.iter().rposition(|text| text.asks == asks);
        let text = text.unwrap_or_else(|| panic!("{asks:?} is in force, which is none of {self:?}"));
        self.0 = vec![self.0.swap_remove(text)];
        asks
    }
}

/// The generation at which the stored text was in force last, and what it asks for.
async fn stored(stage: &Stage, cluster: &str) -> Option<(Option<i64>, Amounts)> {
    let options = SqliteConnectOptions::new().filename(stage.bed.path("fedq.db")).read_only(true);
    let mut database = SqliteConnection::connect_with(&options).await.unwrap();
    let select = "SELECT generation, spec FROM claims_in_force WHERE cluster = ?";
    let row = sqlx::query_as::<_, (Option<i64>, String)>(select).bind(cluster);
    let row = row.fetch_optional(&mut database).await.unwrap();
    database.close().await.unwrap();
    let (generation, spec) = row?;
    let spec: Value = serde_json::from_str(&spec).unwrap();
    let assignments = spec["resourceAssignments"].as_array().unwrap();
    let asks = |queue: &str| {
        let of_queue = assignments.iter().find(|assignment| assignment["clusterQueueName"] == queue);
        of_queue.map_or(0, |of_queue| amount(&of_queue["resources"]))
    };
    Some((generation, QUEUES.map(asks)))
}

/// By the resource's own name, however the claim spelt it.
fn amount(resources: &Value) -> i64 {
    resources[GPU].as_str().map_or(0, |gpus| gpus.parse().expect("whole GPUs"))
}
