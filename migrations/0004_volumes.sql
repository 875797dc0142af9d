-- Volumes that tasks may mount. What is in them is on their cluster; what they are called stands here.

CREATE TABLE volumes (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL UNIQUE,
    owner      TEXT NOT NULL,
    namespace  TEXT NOT NULL,
    cluster    TEXT,                   -- named by the person, or chosen; NULL until it is
    spec       TEXT NOT NULL CHECK (json_valid(spec)),
    created_ms INTEGER NOT NULL,
    deleting   INTEGER NOT NULL CHECK (deleting IN (0, 1)),
    -- One whose claim was there is never made again: what was in it would be missing without a word.
    made       INTEGER NOT NULL DEFAULT 0 CHECK (made IN (0, 1)),
    lost       INTEGER NOT NULL DEFAULT 0 CHECK (lost IN (0, 1))
) STRICT;
CREATE INDEX volumes_by_owner ON volumes (owner, seq);
