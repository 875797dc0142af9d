-- The text of each cluster's claim that its quota rests on: an edit that is not valid, and a second claim, are
-- in `claims` too, and must not come into force because fedqd was started again.

CREATE TABLE claims_in_force (
    cluster TEXT PRIMARY KEY,
    name    TEXT NOT NULL,
    spec    TEXT NOT NULL CHECK (json_valid(spec))
) STRICT, WITHOUT ROWID;

-- Of several claims for a cluster the one that was seen first.
INSERT OR IGNORE INTO claims_in_force (cluster, name, spec)
SELECT json_extract(spec, '$.clusterName'), name, spec FROM claims
WHERE json_type(spec, '$.clusterName') = 'text'
ORDER BY (SELECT min(id) FROM claim_history WHERE claim_history.name = claims.name), name;
