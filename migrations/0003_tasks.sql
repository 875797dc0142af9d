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
    changed_ms   INTEGER NOT NULL
) STRICT;
CREATE INDEX tasks_by_owner ON tasks (owner, seq);
-- After a start only these are read.
CREATE INDEX tasks_live ON tasks (seq) WHERE over = 0;
CREATE INDEX tasks_over ON tasks (changed_ms) WHERE over = 1;

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
