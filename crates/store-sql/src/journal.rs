//! The journal's questions.

use sqlx::sqlite::SqliteRow;
use tollbook_ledger::{AccountId, ReservationId};
use tollbook_store::{
    Answer, Appended, CallPage, CallPlace, CallsQuery, Entry, EntryPlace, Journal, Name, PAGE_MAX, Page,
    PostedSum, Side, Span, StoreError, StoreErrorKind, Total, TotalsQuery, UsageQuery, UsageSum,
};

use crate::append::append;
use crate::error::not_applied;
use crate::line::stored;
use crate::sql::{
    CALL_LIST, ENTRY_BY_END, ENTRY_BY_REQUEST, ENTRY_BY_RESERVATION, POSTED_SUM, POSTED_SUMS, TENANT_LIST,
    TOTAL_LIST, USAGE_BY_POOL, USAGE_BY_TENANT, USER_LIST,
};
use crate::{SqliteStore, row};

impl Journal for SqliteStore {
    fn append<'a>(&'a self, batch: &'a [Entry]) -> Answer<'a, Appended> {
        Box::pin(append(&self.writer, batch))
    }

    fn by_reservation(&self, id: ReservationId) -> Answer<'_, Vec<Entry>> {
        Box::pin(async move {
            let key = id.0.to_be_bytes();
            let query = sqlx::query(ENTRY_BY_RESERVATION).bind(key.as_slice());
            let rows = query.fetch_all(&self.readers).await.map_err(not_applied)?;
            entries_of(&rows)
        })
    }

    fn by_request<'a>(&'a self, request_id: &'a str) -> Answer<'a, Vec<Entry>> {
        Box::pin(async move {
            let query = sqlx::query(ENTRY_BY_REQUEST).bind(request_id).bind(rows_max(PAGE_MAX));
            let rows = query.fetch_all(&self.readers).await.map_err(not_applied)?;
            entries_of(&rows)
        })
    }

    fn entries(&self, ended: Span, after: EntryPlace, max: usize) -> Answer<'_, Page> {
        Box::pin(async move {
            let max = max.clamp(1, PAGE_MAX);
            let query = sqlx::query(ENTRY_BY_END)
                .bind(stored(ended.from))
                .bind(stored(ended.to))
                .bind(stored(after.ended_at))
                .bind(after.number)
                .bind(rows_max(max));
            let rows = query.fetch_all(&self.readers).await.map_err(not_applied)?;
            let entries = rows.iter().map(row::entry).collect::<Result<Vec<_>, _>>().map_err(not_applied)?;
            let next = entries.last().filter(|_| entries.len() == max).map(|(place, _)| *place);
            Ok(Page { entries: entries.into_iter().map(|(_, entry)| entry).collect(), next })
        })
    }

    fn totals<'a>(&'a self, query: &'a TotalsQuery) -> Answer<'a, Vec<Total>> {
        Box::pin(async move {
            let rows = sqlx::query(TOTAL_LIST)
                .bind(i64::from(query.days.from.0))
                .bind(i64::from(query.days.to.0))
                .bind(i64::from(query.side.code()))
                .bind(&*query.tenant)
                .bind(&*query.pool)
                .bind(&*query.model)
                .fetch_all(&self.readers)
                .await
                .map_err(not_applied)?;
            rows.iter().map(row::total).collect::<Result<_, _>>().map_err(not_applied)
        })
    }

    fn posted_sums(
        &self,
        since: u64,
        after: Option<(AccountId, u64)>,
        max: usize,
    ) -> Answer<'_, Vec<PostedSum>> {
        Box::pin(async move {
            let (subject, account, period) = after.map_or((i64::MIN, i64::MIN, -1), |(account, period)| {
                (account.subject.0.cast_signed(), account.name.cast_signed(), stored(period))
            });
            let rows = sqlx::query(POSTED_SUMS)
                .bind(stored(since))
                .bind(subject)
                .bind(account)
                .bind(period)
                .bind(rows_max(max.clamp(1, PAGE_MAX)))
                .fetch_all(&self.readers)
                .await
                .map_err(not_applied)?;
            rows.iter().map(row::posted_sum).collect::<Result<_, _>>().map_err(not_applied)
        })
    }

    fn posted_sum(&self, account: AccountId, period: u64) -> Answer<'_, i64> {
        Box::pin(async move {
            sqlx::query_scalar(POSTED_SUM)
                .bind(account.subject.0.cast_signed())
                .bind(account.name.cast_signed())
                .bind(stored(period))
                .fetch_optional(&self.readers)
                .await
                .map_err(not_applied)
                .map(Option::unwrap_or_default)
        })
    }

    fn usage_sum<'a>(&'a self, query: &'a UsageQuery) -> Answer<'a, UsageSum> {
        Box::pin(async move {
            let (statement, who) = match query.side {
                Side::Tenant => (USAGE_BY_TENANT, &query.tenant),
                Side::Pool | Side::Unreadable => (USAGE_BY_POOL, &query.pool),
            };
            if who.is_empty() {
                let refused = StoreErrorKind::Refused("neither a tenant nor a pool is named");
                return Err(StoreError::not_applied(refused));
            }
            let row = sqlx::query(statement)
                .bind(stored(query.admitted.from))
                .bind(stored(query.admitted.to))
                .bind(&*query.tenant)
                .bind(&*query.pool)
                .bind(&*query.project)
                .bind(&*query.key)
                .bind(&*query.service)
                .bind(&*query.user)
                .bind(&*query.model)
                .bind(query.without.map(|account| account.subject.0.cast_signed()))
                .bind(query.without.map(|account| account.name.cast_signed()))
                .fetch_one(&self.readers)
                .await
                .map_err(not_applied)?;
            row::usage_sum(&row).map_err(not_applied)
        })
    }

    fn users<'a>(
        &'a self,
        tenant: &'a str,
        admitted: Span,
        after: &'a str,
        max: usize,
    ) -> Answer<'a, Vec<Name>> {
        Box::pin(async move {
            let rows = sqlx::query(USER_LIST)
                .bind(tenant)
                .bind(stored(admitted.from))
                .bind(stored(admitted.to))
                .bind(after)
                .bind(rows_max(max.clamp(1, PAGE_MAX)))
                .fetch_all(&self.readers)
                .await
                .map_err(not_applied)?;
            rows.iter().map(|row| row::name(row, "end_user")).collect::<Result<_, _>>().map_err(not_applied)
        })
    }

    fn tenants<'a>(&'a self, after: &'a str, max: usize) -> Answer<'a, Vec<Name>> {
        Box::pin(async move {
            let query = sqlx::query(TENANT_LIST).bind(after).bind(rows_max(max.clamp(1, PAGE_MAX)));
            let rows = query.fetch_all(&self.readers).await.map_err(not_applied)?;
            rows.iter().map(|row| row::name(row, "tenant")).collect::<Result<_, _>>().map_err(not_applied)
        })
    }

    fn calls<'a>(&'a self, query: &'a CallsQuery, after: CallPlace, max: usize) -> Answer<'a, CallPage> {
        Box::pin(async move {
            let max = max.clamp(1, PAGE_MAX);
            let rows = sqlx::query(CALL_LIST)
                .bind(&*query.tenant)
                // A page begins where the last one ended, not where the first one did.
                .bind(stored(query.admitted.from.max(after.admitted_at)))
                .bind(stored(query.admitted.to))
                .bind(stored(after.admitted_at))
                .bind(after.number)
                .bind(rows_max(max))
                .fetch_all(&self.readers)
                .await
                .map_err(not_applied)?;
            row::calls(&rows, max).map_err(not_applied)
        })
    }
}

fn entries_of(rows: &[SqliteRow]) -> Result<Vec<Entry>, StoreError> {
    rows.iter()
        .map(|row| row::entry(row).map(|(_, entry)| entry))
        .collect::<Result<_, _>>()
        .map_err(not_applied)
}

fn rows_max(max: usize) -> i64 {
    i64::try_from(max).unwrap_or(i64::MAX)
}
