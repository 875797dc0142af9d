//! What tenants and people may take at once, and how long a task may run.

use serde_json::Value;

use super::stage::Stage;

/// From its next start on.
async fn limit(stage: &mut Stage, limits: &str) {
    stage.kill();
    let path = stage.bed.path("fedqd.yaml");
    let config = std::fs::read_to_string(&path).unwrap();
    let limited = config.replace("queue: queue, ", &format!("queue: queue, limits: {limits}, "));
    assert_ne!(limited, config, "the tenant is written otherwise");
    std::fs::write(&path, limited).unwrap();
    stage.start();
    stage.knows(stage.bed.workers.len()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_over_its_owners_limit_waits_for_one_to_end_and_says_so() {
    let mut stage = Stage::set(&[("one", 8)]).await;
    limit(&mut stage, "{gpus: 8, perUser: {gpus: 3}}").await;
    let first = stage.submit(3600, "run: x\nresources: {accelerators: 2}\n").await;
    stage.reaches(&first, "running").await;
    let second = stage.submit(1, "run: x\nresources: {accelerators: 2}\n").await;
    let reason = "the tasks of one person in your tenant may take 3 GPUs at once, and this one needs 2 while others \
                  take 2 (tasks.tenants[].limits.perUser.gpus)";
    stage.waits_because(&second, reason).await;
    let told = stage.fedq(&["task", "explain", &second, "-o", "json"], "").await.unwrap();
    let told: Value = serde_json::from_str(&told).unwrap();
    let one = &told["clusters"][0];
    assert!(one["verdict"] == "waits" && one["chosen"] != true, "{told:#}");
    assert!(one["reasons"].to_string().contains("limits.perUser.gpus"), "{told:#}");
    stage.kill();
    stage.start();
    let small = stage.submit(1, "run: x\nresources: {accelerators: 1}\n").await;
    let behind = "the tasks of one person in your tenant may take 3 GPUs at once, and this one needs 1 while others \
                  take 2 and an earlier one waits for more than is left (tasks.tenants[].limits.perUser.gpus)";
    stage.waits_because(&small, behind).await;
    let other = stage.submit(1, "run: x\n").await;
    stage.reaches(&other, "succeeded").await;
    stage.waits_because(&second, reason).await;
    assert_eq!(stage.ever(&second, "Job").len(), 0, "it was sent nowhere");
    stage.fedq(&["task", "stop", &first, "--yes"], "").await.unwrap();
    stage.reaches(&second, "succeeded").await;
    stage.reaches(&small, "succeeded").await;

    let never = stage.try_submit(1, "run: x\nresources: {accelerators: 4}\n", &[]).await.unwrap_err();
    for part in ["line 2", "resources", "tasks.tenants[].limits.perUser.gpus", "ask for less"] {
        assert!(never.contains(part), "{never}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_runs_for_longer_than_it_may_is_ended_also_by_the_next_fedqd() {
    let mut stage = Stage::set(&[("one", 8)]).await;
    limit(&mut stage, "{maxDuration: 1h, defaultDuration: 4s}").await;
    let task =
        "run: x\nmax_duration: 8s\nresources: {accelerators: 1, job_recovery: {max_restarts_on_errors: 3}}\n";
    let id = stage.submit(3600, task).await;
    stage.reaches(&id, "running").await;
    stage.kill();
    stage.start();
    let failed = stage.reaches(&id, "failed").await;
    let told = (failed["failure"].as_str(), failed["epoch"].as_u64(), failed["maxDuration"].as_str());
    assert_eq!(told, (Some("overdue"), Some(1), Some("8s")), "it is not started again: {failed:#}");
    assert!(failed["events"].to_string().contains("max_duration is 8s"), "{failed:#}");
    stage.is_gone(&id).await;
    let short = stage.submit(1, "run: x\nresources: {accelerators: 1}\n").await;
    let long = stage.submit(3600, "run: x\nresources: {accelerators: 1}\n").await;
    assert_eq!(stage.reaches(&long, "failed").await["maxDuration"], "4s");
    stage.reaches(&short, "succeeded").await;
    let refused = stage.try_submit(1, "run: x\n", &["--max-duration", "2h"]).await.unwrap_err();
    assert!(refused.contains("max_duration") && refused.contains("for 1h at most"), "{refused}");
}
