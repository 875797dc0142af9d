-- What clusters told us, so that a restart neither lists everything again nor lets a quota dip.
-- Times are milliseconds since 1970 in UTC; amounts are in the unit that quota is counted in.

CREATE TABLE clusters (
    name         TEXT PRIMARY KEY,
    identity     TEXT,                 -- UID of its kube-system namespace, once it has answered
    server       TEXT NOT NULL,        -- URL, without credentials
    source       TEXT NOT NULL,
    connection   TEXT NOT NULL,
    last_seen_ms INTEGER,
    cordoned     INTEGER NOT NULL CHECK (cordoned IN (0, 1)),
    version      TEXT,                 -- of its Kubernetes
    joined_ms    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE nodes (
    cluster TEXT NOT NULL REFERENCES clusters (name) ON DELETE CASCADE,
    name    TEXT NOT NULL,
    row     BLOB NOT NULL,
    PRIMARY KEY (cluster, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE watch_positions (
    cluster            TEXT NOT NULL REFERENCES clusters (name) ON DELETE CASCADE,
    kind               TEXT NOT NULL,
    resource_version   TEXT NOT NULL,
    labels_of_interest TEXT NOT NULL,  -- hash: rows trimmed for other labels cannot be resumed from
    PRIMARY KEY (cluster, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE capacity (
    cluster  TEXT NOT NULL REFERENCES clusters (name) ON DELETE CASCADE,
    flavor   TEXT NOT NULL,
    resource TEXT NOT NULL,
    capacity INTEGER NOT NULL,
    foreign_quota INTEGER NOT NULL,
    usable   INTEGER NOT NULL,
    at_ms    INTEGER NOT NULL,         -- when it last changed
    PRIMARY KEY (cluster, flavor, resource)
) STRICT, WITHOUT ROWID;

-- History outlives the cluster: no reference to it.
CREATE TABLE capacity_history (
    id       INTEGER PRIMARY KEY AUTOINCREMENT,
    at_ms    INTEGER NOT NULL,
    cluster  TEXT NOT NULL,
    flavor   TEXT NOT NULL,
    resource TEXT NOT NULL,
    capacity INTEGER,                  -- NULL: no longer reported, which is not the same as 0
    usable   INTEGER
) STRICT;
CREATE INDEX capacity_history_by_cluster ON capacity_history (cluster, id);
CREATE INDEX capacity_history_by_age ON capacity_history (at_ms);
