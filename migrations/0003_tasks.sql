-- Tasks have no other home: what is acknowledged stands here.

CREATE TABLE tasks (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,  -- in the order of acceptance
    id           TEXT NOT NULL UNIQUE,
    owner        TEXT NOT NULL,
    namespace    TEXT NOT NULL,
    queue        TEXT,
    cluster      TEXT,                 -- the only one the person wants
    submitted_ms INTEGER NOT NULL,
    spec         TEXT NOT NULL CHECK (json_valid(spec)),        -- with the names of secrets, never their values
    state        TEXT NOT NULL CHECK (json_valid(state)),
    over         INTEGER NOT NULL CHECK (over IN (0, 1)),
    dispatch     TEXT CHECK (json_valid(dispatch)),             -- of the current epoch
    restarts     INTEGER NOT NULL,
    changed_ms   INTEGER NOT NULL,
    nodes        TEXT CHECK (json_valid(nodes)),                -- how they ended, once it is over
    -- Tasks that run one after the other. A pipeline goes by the id of its first task.
    pipeline      TEXT,
    pipeline_name TEXT,
    stage         INTEGER,             -- from 1
    stages        INTEGER,             -- how many there are
    waits_for     TEXT                 -- the stage before, until that has succeeded
) STRICT;
CREATE INDEX tasks_by_owner ON tasks (owner, seq);
-- After a start only these are read.
CREATE INDEX tasks_live ON tasks (seq) WHERE over = 0;
-- A person's tasks that are not over are found among those alone, however many are over.
CREATE INDEX tasks_live_by_owner ON tasks (owner, seq) WHERE over = 0;
CREATE INDEX tasks_over ON tasks (changed_ms) WHERE over = 1;
CREATE INDEX tasks_by_pipeline ON tasks (pipeline, stage) WHERE pipeline IS NOT NULL;

CREATE TABLE task_events (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    task    INTEGER NOT NULL REFERENCES tasks (seq) ON DELETE CASCADE,
    at_ms   INTEGER NOT NULL,
    epoch   INTEGER NOT NULL,
    phase   TEXT NOT NULL CHECK (json_valid(phase)),
    reason  TEXT NOT NULL,
    message TEXT NOT NULL
) STRICT;
CREATE INDEX task_events_by_task ON task_events (task, id);

-- How many tasks a person has that are not over, and how much these take, since each of them is in memory until then.
-- It is asked at each that they hand in, and kept: counting would take longer than accepting one.
CREATE TABLE task_owners (
    owner      TEXT PRIMARY KEY,
    live       INTEGER NOT NULL CHECK (0 < live),
    live_bytes INTEGER NOT NULL DEFAULT 0 CHECK (0 <= live_bytes)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER tasks_count_new AFTER INSERT ON tasks WHEN NEW.over = 0 BEGIN
    INSERT INTO task_owners (owner, live, live_bytes) VALUES (NEW.owner, 1, octet_length(NEW.spec))
    ON CONFLICT (owner) DO UPDATE SET live = live + 1, live_bytes = live_bytes + excluded.live_bytes;
END;
CREATE TRIGGER tasks_count_over AFTER UPDATE OF over ON tasks WHEN OLD.over = 0 AND NEW.over = 1 BEGIN
    DELETE FROM task_owners WHERE owner = OLD.owner AND live = 1;
    UPDATE task_owners SET live = live - 1, live_bytes = live_bytes - octet_length(OLD.spec)
    WHERE owner = OLD.owner;
END;
CREATE TRIGGER tasks_count_gone AFTER DELETE ON tasks WHEN OLD.over = 0 BEGIN
    DELETE FROM task_owners WHERE owner = OLD.owner AND live = 1;
    UPDATE task_owners SET live = live - 1, live_bytes = live_bytes - octet_length(OLD.spec)
    WHERE owner = OLD.owner;
END;
