//! Who did what through fedq. Append only.

use futures::FutureExt;
use jiff::Timestamp;
use serde_json::Value;
use sqlx::{
    Row,
    sqlite::{SqliteConnection, SqliteRow},
};

use super::{Page, PageRequest, Store, StoreError, column, error::reading};

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AuditEntry {
    /// 0 before it is stored.
    pub id: i64,
    pub at: Timestamp,
    pub who: String,
    /// `update`, `confirm-identity`, …
    pub verb: String,
    /// `clusterresourceclaims/cluster2-resource-claim`
    pub object: String,
    /// What changed. Never a Secret's content: the caller passes what a person may read.
    pub detail: Option<Value>,
    /// `ok`, or why not.
    pub outcome: String,
    /// Who acted as `who`, where that was somebody else.
    pub through: Option<String>,
    /// Nothing was done, since it was not allowed or not valid.
    pub refused: bool,
}

/// All entries where every field is `None`.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct AuditFilter {
    pub who: Option<String>,
    pub object: Option<String>,
    pub since: Option<Timestamp>,
    /// Of what was done with tasks and volumes, only what this person did: others' are told of to nobody else.
    pub tasks_of: Option<String>,
}

impl Store {
    /// Appends the entry and returns its number.
    pub async fn record_audit(&self, entry: &AuditEntry) -> Result<i64, StoreError> {
        let entry = entry.clone();
        self.write("record the audit entry", move |connection| {
            async move { append(connection, &entry).await }.boxed()
        })
        .await
    }

    /// Newest first.
    pub async fn audit(
        &self,
        filter: &AuditFilter,
        page: &PageRequest,
    ) -> Result<Page<AuditEntry>, StoreError> {
        let rows = sqlx::query(
            "SELECT * FROM audit
             WHERE id < ?1 AND (?2 IS NULL OR who = ?2) AND (?3 IS NULL OR object = ?3) AND (?4 IS NULL OR ?4 <= at_ms)
               AND (?6 IS NULL OR who = ?6 OR (object NOT GLOB 'tasks*' AND object NOT GLOB 'volumes*'))
             ORDER BY id DESC LIMIT ?5",
        )
        .bind(page.before_id()?)
        .bind(&filter.who)
        .bind(&filter.object)
        .bind(filter.since.map(Timestamp::as_millisecond))
        .bind(page.probe())
        .bind(&filter.tasks_of)
        .try_map(|row| entry(&row))
        .fetch_all(self.readers())
        .await
        .map_err(reading("list the audit log"))?;
        Ok(Page::cut(rows, page, |row| row.id.to_string()))
    }
}

/// In the commit of what was done.
pub(super) async fn append(connection: &mut SqliteConnection, entry: &AuditEntry) -> sqlx::Result<i64> {
    let done = sqlx::query(
        "INSERT INTO audit (at_ms, who, verb, object, detail, outcome, through, refused)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
    )
    .bind(entry.at.as_millisecond())
    .bind(&entry.who)
    .bind(&entry.verb)
    .bind(&entry.object)
    .bind(entry.detail.as_ref().map(column::json_text).transpose()?)
    .bind(&entry.outcome)
    .bind(&entry.through)
    .bind(entry.refused)
    .execute(connection)
    .await?;
    Ok(done.last_insert_rowid())
}

fn entry(row: &SqliteRow) -> sqlx::Result<AuditEntry> {
    Ok(AuditEntry {
        id: row.try_get("id")?,
        at: column::time(row, "at_ms")?,
        who: row.try_get("who")?,
        verb: row.try_get("verb")?,
        object: row.try_get("object")?,
        detail: column::optional_json(row, "detail")?,
        outcome: row.try_get("outcome")?,
        through: row.try_get("through")?,
        refused: row.try_get("refused")?,
    })
}
