//! Every applied plan, with why it was made and what it reports.

use futures::FutureExt;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::{Row, sqlite::SqliteRow};

use super::{Page, PageRequest, Store, StoreError, column, error::reading};
use fedq_values::ids::{ClaimName, ClusterName};

/// Why a plan was made. A field is there when that is (part of) the reason.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlanCause {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimName>,
    /// Of that claim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    /// In words, with the nodes that it came of: `on-demand nvidia.com/gpu 8 → 6 (node a-3)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_change: Option<String>,
    /// In words, where it was neither: a queue changed, a cluster was lost, fedqd started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub who: Option<String>,
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub struct PlanRow {
    pub id: i64,
    pub at: Timestamp,
    pub cluster: ClusterName,
    pub cause: PlanCause,
    pub report: Value,
}

impl Store {
    /// Appends the plan and returns its number.
    pub async fn record_plan(
        &self,
        cluster: &ClusterName,
        cause: &PlanCause,
        report: &Value,
        at: Timestamp,
    ) -> Result<i64, StoreError> {
        let (cluster, cause, report) = (cluster.clone(), cause.clone(), report.clone());
        self.write("record the plan", move |connection| {
            async move {
                let done =
                    sqlx::query("INSERT INTO plans (at_ms, cluster, cause, report) VALUES (?1, ?2, ?3, ?4)")
                        .bind(at.as_millisecond())
                        .bind(cluster.as_str())
                        .bind(column::json_text(&cause)?)
                        .bind(column::json_text(&report)?)
                        .execute(connection)
                        .await?;
                Ok(done.last_insert_rowid())
            }
            .boxed()
        })
        .await
    }

    pub async fn plan(&self, id: i64) -> Result<Option<PlanRow>, StoreError> {
        sqlx::query("SELECT * FROM plans WHERE id = ?1")
            .bind(id)
            .try_map(|row| plan(&row))
            .fetch_optional(self.readers())
            .await
            .map_err(reading("read the plan"))
    }

    pub async fn latest_plan(&self, cluster: &ClusterName) -> Result<Option<PlanRow>, StoreError> {
        sqlx::query("SELECT * FROM plans WHERE cluster = ?1 ORDER BY id DESC LIMIT 1")
            .bind(cluster.as_str())
            .try_map(|row| plan(&row))
            .fetch_optional(self.readers())
            .await
            .map_err(reading("read the plan"))
    }

    /// Newest first; of all clusters where `None`.
    pub async fn plans(
        &self,
        cluster: Option<&ClusterName>,
        page: &PageRequest,
    ) -> Result<Page<PlanRow>, StoreError> {
        let rows = sqlx::query(
            "SELECT * FROM plans WHERE id < ?1 AND (?2 IS NULL OR cluster = ?2) ORDER BY id DESC LIMIT ?3",
        )
        .bind(page.before_id()?)
        .bind(cluster.map(ClusterName::as_str))
        .bind(page.probe())
        .try_map(|row| plan(&row))
        .fetch_all(self.readers())
        .await
        .map_err(reading("list plans"))?;
        Ok(Page::cut(rows, page, |row| row.id.to_string()))
    }
}

fn plan(row: &SqliteRow) -> sqlx::Result<PlanRow> {
    Ok(PlanRow {
        id: row.try_get("id")?,
        at: column::time(row, "at_ms")?,
        cluster: column::name(row, "cluster")?,
        cause: column::json(row, "cause")?,
        report: column::json(row, "report")?,
    })
}
