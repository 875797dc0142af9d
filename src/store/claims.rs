//! Each claim as last seen on the hub, and every edit of it with its author.

use futures::FutureExt;
use jiff::Timestamp;
use serde_json::Value;
use sqlx::{
    Row,
    sqlite::{SqliteConnection, SqliteRow},
};

use super::{Page, PageRequest, Store, StoreError, column, error::reading};
use fedq_values::ids::{ClaimName, ClusterName};

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClaimRow {
    pub name: ClaimName,
    pub generation: i64,
    /// Who made this generation: a person where fedq knows them, else a field manager.
    pub who: String,
    pub spec: Value,
    pub at: Timestamp,
}

/// One line of the history.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClaimChange {
    pub id: i64,
    pub at: Timestamp,
    pub name: ClaimName,
    pub generation: i64,
    pub who: String,
    /// `None`: the claim was created.
    pub old_spec: Option<Value>,
    /// `None`: the claim was deleted.
    pub new_spec: Option<Value>,
}

/// The text that a cluster's quota rests on.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClaimInForce {
    pub name: ClaimName,
    pub spec: Value,
    /// The last one at which it was in force, whether or not it is what that one says. `None`: not known.
    pub seen: Option<ClaimGeneration>,
}

/// Which text of which object of that name.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClaimGeneration {
    pub uid: String,
    pub generation: i64,
}

impl Store {
    /// `None`: no claim is in force for the cluster any more.
    pub async fn put_claim_in_force(
        &self,
        cluster: &ClusterName,
        claim: Option<&ClaimInForce>,
    ) -> Result<(), StoreError> {
        let (cluster, claim) = (cluster.clone(), claim.cloned());
        self.write("record the claim in force", move |connection| {
            async move {
                let Some(claim) = claim else {
                    sqlx::query("DELETE FROM claims_in_force WHERE cluster = ?1")
                        .bind(cluster.as_str())
                        .execute(&mut *connection)
                        .await?;
                    return Ok(());
                };
                sqlx::query(
                    "INSERT OR REPLACE INTO claims_in_force (cluster, name, spec, uid, generation) VALUES (?1, ?2, ?3, ?4, ?5)",
                )
                .bind(cluster.as_str())
                .bind(claim.name.as_str())
                .bind(column::json_text(&claim.spec)?)
                .bind(claim.seen.as_ref().map(|seen| &seen.uid))
                .bind(claim.seen.as_ref().map(|seen| seen.generation))
                .execute(&mut *connection)
                .await?;
                Ok(())
            }
            .boxed()
        })
        .await
    }

    /// Of every cluster, by its name.
    pub async fn claims_in_force(&self) -> Result<Vec<ClaimInForce>, StoreError> {
        let claim = |row: SqliteRow| {
            let uid: Option<String> = row.try_get("uid")?;
            let generation: Option<i64> = row.try_get("generation")?;
            let seen = uid.zip(generation).map(|(uid, generation)| ClaimGeneration { uid, generation });
            Ok(ClaimInForce { name: column::name(&row, "name")?, spec: column::json(&row, "spec")?, seen })
        };
        sqlx::query("SELECT * FROM claims_in_force ORDER BY cluster")
            .try_map(claim)
            .fetch_all(self.readers())
            .await
            .map_err(reading("read the claims in force"))
    }

    /// Records the claim as seen, and a line of history if its spec is new. Whether it was. Seeing the
    /// same spec again, as after each restart, writes nothing.
    pub async fn record_claim(&self, claim: &ClaimRow) -> Result<bool, StoreError> {
        let claim = claim.clone();
        self.write("record the claim", move |connection| {
            async move {
                let before = seen(connection, &claim.name).await?;
                let same_spec = before.as_ref().is_some_and(|before| before.spec == claim.spec);
                if same_spec && before.as_ref().is_some_and(|before| before.generation == claim.generation) {
                    return Ok(false);
                }
                put(connection, &claim).await?;
                if !same_spec {
                    let change = ClaimChange {
                        id: 0,
                        at: claim.at,
                        name: claim.name,
                        generation: claim.generation,
                        who: claim.who,
                        old_spec: before.map(|before| before.spec),
                        new_spec: Some(claim.spec),
                    };
                    append(connection, &change).await?;
                }
                Ok(!same_spec)
            }
            .boxed()
        })
        .await
    }

    /// The claim is gone from the hub. Whether it was known.
    pub async fn claim_removed(
        &self,
        name: &ClaimName,
        who: &str,
        at: Timestamp,
    ) -> Result<bool, StoreError> {
        let (name, who) = (name.clone(), who.to_owned());
        self.write("record the claim's removal", move |connection| {
            async move {
                let Some(before) = seen(connection, &name).await? else { return Ok(false) };
                sqlx::query("DELETE FROM claims WHERE name = ?1")
                    .bind(name.as_str())
                    .execute(&mut *connection)
                    .await?;
                let generation = before.generation;
                let change = ClaimChange {
                    id: 0,
                    at,
                    name,
                    generation,
                    who,
                    old_spec: Some(before.spec),
                    new_spec: None,
                };
                append(connection, &change).await?;
                Ok(true)
            }
            .boxed()
        })
        .await
    }

    pub async fn claim(&self, name: &ClaimName) -> Result<Option<ClaimRow>, StoreError> {
        sqlx::query("SELECT * FROM claims WHERE name = ?1")
            .bind(name.as_str())
            .try_map(|row| claim(&row))
            .fetch_optional(self.readers())
            .await
            .map_err(reading("read the claim"))
    }

    /// By name.
    pub async fn claims(&self, page: &PageRequest) -> Result<Page<ClaimRow>, StoreError> {
        let rows = sqlx::query("SELECT * FROM claims WHERE ?1 < name ORDER BY name LIMIT ?2")
            .bind(page.after_text())
            .bind(page.probe())
            .try_map(|row| claim(&row))
            .fetch_all(self.readers())
            .await
            .map_err(reading("list claims"))?;
        Ok(Page::cut(rows, page, |row| row.name.to_string()))
    }

    /// Newest first; of all claims where `None`.
    pub async fn claim_history(
        &self,
        name: Option<&ClaimName>,
        page: &PageRequest,
    ) -> Result<Page<ClaimChange>, StoreError> {
        let rows = sqlx::query(
            "SELECT * FROM claim_history WHERE id < ?1 AND (?2 IS NULL OR name = ?2) ORDER BY id DESC LIMIT ?3",
        )
        .bind(page.before_id()?)
        .bind(name.map(ClaimName::as_str))
        .bind(page.probe())
        .try_map(|row| change(&row))
        .fetch_all(self.readers())
        .await
        .map_err(reading("list the history of claims"))?;
        Ok(Page::cut(rows, page, |row| row.id.to_string()))
    }
}

async fn seen(connection: &mut SqliteConnection, name: &ClaimName) -> sqlx::Result<Option<ClaimRow>> {
    sqlx::query("SELECT * FROM claims WHERE name = ?1")
        .bind(name.as_str())
        .try_map(|row| claim(&row))
        .fetch_optional(connection)
        .await
}

async fn put(connection: &mut SqliteConnection, claim: &ClaimRow) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT OR REPLACE INTO claims (name, generation, who, spec, at_ms) VALUES (?1, ?2, ?3, ?4, ?5)",
    )
    .bind(claim.name.as_str())
    .bind(claim.generation)
    .bind(&claim.who)
    .bind(column::json_text(&claim.spec)?)
    .bind(claim.at.as_millisecond())
    .execute(connection)
    .await?;
    Ok(())
}

async fn append(connection: &mut SqliteConnection, change: &ClaimChange) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO claim_history (at_ms, name, generation, who, old_spec, new_spec) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )
    .bind(change.at.as_millisecond())
    .bind(change.name.as_str())
    .bind(change.generation)
    .bind(&change.who)
    .bind(change.old_spec.as_ref().map(column::json_text).transpose()?)
    .bind(change.new_spec.as_ref().map(column::json_text).transpose()?)
    .execute(connection)
    .await?;
    Ok(())
}

fn claim(row: &SqliteRow) -> sqlx::Result<ClaimRow> {
    Ok(ClaimRow {
        name: column::name(row, "name")?,
        generation: row.try_get("generation")?,
        who: row.try_get("who")?,
        spec: column::json(row, "spec")?,
        at: column::time(row, "at_ms")?,
    })
}

fn change(row: &SqliteRow) -> sqlx::Result<ClaimChange> {
    Ok(ClaimChange {
        id: row.try_get("id")?,
        at: column::time(row, "at_ms")?,
        name: column::name(row, "name")?,
        generation: row.try_get("generation")?,
        who: row.try_get("who")?,
        old_spec: column::optional_json(row, "old_spec")?,
        new_spec: column::optional_json(row, "new_spec")?,
    })
}
