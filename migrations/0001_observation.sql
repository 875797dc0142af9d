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

-- What each cluster's objects were when fedqd stopped, for the next start to go on from. Nothing is decided by
-- it: what the cluster then sends counts.
CREATE TABLE known_objects (
    cluster TEXT PRIMARY KEY REFERENCES clusters (name) ON DELETE CASCADE,
    build   TEXT NOT NULL,             -- of the fedqd that wrote it: another may read more of an object
    objects BLOB NOT NULL
) STRICT, WITHOUT ROWID;

-- Clusters that sent more than fedqd keeps of one: a start does not let them do it again. Whoever changes what joins the
-- cluster, or sets the bounds higher, has it tried anew.
CREATE TABLE refused_clusters (
    cluster     TEXT PRIMARY KEY REFERENCES clusters (name) ON DELETE CASCADE,
    reason      TEXT NOT NULL,
    joined_with TEXT NOT NULL,     -- hash of what it was joined with
    objects     INTEGER NOT NULL,  -- the bounds at the time
    bytes       INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
