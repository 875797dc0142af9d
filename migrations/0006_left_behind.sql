-- Dispatches that may still run on a cluster that was lost when another took their task over. Each is there until that
-- cluster has confirmed that nothing of it is left, or has been let go of; its task is not forgotten before.
CREATE TABLE task_left_behind (
    task     INTEGER NOT NULL REFERENCES tasks (seq),
    epoch    INTEGER NOT NULL,
    state    TEXT NOT NULL CHECK (json_valid(state)),           -- in which the task was then
    dispatch TEXT NOT NULL CHECK (json_valid(dispatch)),
    PRIMARY KEY (task, epoch)
) STRICT, WITHOUT ROWID;
