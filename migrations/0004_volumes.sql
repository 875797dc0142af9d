-- Volumes that tasks may mount. What is in them is on their cluster; what they are called stands here.

CREATE TABLE volumes (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL UNIQUE,
    owner      TEXT NOT NULL,
    namespace  TEXT NOT NULL,
    cluster    TEXT,                   -- named by the person, or chosen; NULL until it is
    spec       TEXT NOT NULL CHECK (json_valid(spec)),
    created_ms INTEGER NOT NULL,
    deleting   INTEGER NOT NULL CHECK (deleting IN (0, 1))
) STRICT;
CREATE INDEX volumes_by_owner ON volumes (owner, seq);

-- How its nodes ended, once a task is over.
ALTER TABLE tasks ADD COLUMN nodes TEXT CHECK (json_valid(nodes));
