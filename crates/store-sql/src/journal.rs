//! The journal's questions.

use tollbook_ledger::{AccountId, Micros, ReservationId};
use tollbook_store::{
    Answer, Appended, CallPage, CallPlace, CallsQuery, Entry, EntryPlace, Journal, JournalDays, Name,
    PAGE_MAX, Page, PostedSum, Side, Span, StoreError, StoreErrorKind, Total, TotalsQuery, UsageQuery,
    UsageSum,
};

use crate::append::append;
use crate::db::{Ask, Row, ask};
use crate::error::not_applied;
use crate::line::stored;
use crate::sql::{
    CALL_LIST, ENTRY_BY_END, ENTRY_BY_REQUEST, ENTRY_BY_RESERVATION, ENTRY_GONE, ENTRY_KNOWN, POSTED_SUM,
    POSTED_SUMS, TENANT_LIST, TOTAL_LIST, USAGE_BY_POOL, USAGE_BY_TENANT, USER_LIST,
};
use crate::{SqlStore, row};

impl Journal for SqlStore {
    fn append<'a>(&'a self, batch: &'a [Entry]) -> Answer<'a, Appended> {
        self.pools.again(move || Box::pin(append(&self.pools, batch)))
    }

    fn by_reservation(&self, id: ReservationId) -> Answer<'_, Vec<Entry>> {
        let question = move || ask(&ENTRY_BY_RESERVATION).bind(id.0.to_be_bytes().as_slice());
        self.found(question, entries_of)
    }

    fn by_request<'a>(&'a self, request_id: &'a str) -> Answer<'a, Vec<Entry>> {
        let question = move || ask(&ENTRY_BY_REQUEST).bind(request_id).bind(rows_max(PAGE_MAX));
        self.found(question, entries_of)
    }

    fn entries(&self, ended: Span, after: EntryPlace, max: usize) -> Answer<'_, Page> {
        let max = max.clamp(1, PAGE_MAX);
        let question = move || {
            ask(&ENTRY_BY_END)
                .bind(stored(ended.from))
                .bind(stored(ended.to))
                .bind(stored(after.ended_at))
                .bind(after.number)
                .bind(rows_max(max))
        };
        self.found(question, move |rows| {
            let entries = rows.iter().map(row::entry).collect::<Result<Vec<_>, _>>()?;
            let next = entries.last().filter(|_| entries.len() == max).map(|(place, _)| *place);
            Ok(Page { entries: entries.into_iter().map(|(_, entry)| entry).collect(), next })
        })
    }

    fn totals<'a>(&'a self, query: &'a TotalsQuery) -> Answer<'a, Vec<Total>> {
        let question = move || {
            ask(&TOTAL_LIST)
                .bind(i64::from(query.days.from.0))
                .bind(i64::from(query.days.to.0))
                .bind(i64::from(query.side.code()))
                .bind(&*query.tenant)
                .bind(&*query.pool)
                .bind(&*query.model)
        };
        self.found(question, |rows| rows.iter().map(row::total).collect())
    }

    fn posted_sums(
        &self,
        since: u64,
        after: Option<(AccountId, u64)>,
        max: usize,
    ) -> Answer<'_, Vec<PostedSum>> {
        let (subject, account, period) = after.map_or((i64::MIN, i64::MIN, -1), |(account, period)| {
            (account.subject.0.cast_signed(), account.name.cast_signed(), stored(period))
        });
        let question = move || {
            ask(&POSTED_SUMS)
                .bind(stored(since))
                .bind(subject)
                .bind(account)
                .bind(period)
                .bind(rows_max(max.clamp(1, PAGE_MAX)))
        };
        self.found(question, |rows| rows.iter().map(row::posted_sum).collect())
    }

    fn posted_sum(&self, account: AccountId, period: u64) -> Answer<'_, i64> {
        let question = move || {
            ask(&POSTED_SUM)
                .bind(account.subject.0.cast_signed())
                .bind(account.name.cast_signed())
                .bind(stored(period))
        };
        self.found(question, |rows| rows.first().map_or(Ok(0), |row| row.int("amount")))
    }

    fn usage_sum<'a>(&'a self, query: &'a UsageQuery) -> Answer<'a, UsageSum> {
        let (statement, who) = match query.side {
            Side::Tenant => (&USAGE_BY_TENANT, &query.tenant),
            Side::Pool | Side::Unreadable => (&USAGE_BY_POOL, &query.pool),
        };
        if who.is_empty() {
            let refused = StoreErrorKind::Refused("neither a tenant nor a pool is named");
            return Box::pin(std::future::ready(Err(StoreError::not_applied(refused))));
        }
        let question = move || {
            ask(statement)
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
        };
        self.found(question, |rows| rows.first().map_or(Err(sqlx::Error::RowNotFound), row::usage_sum))
    }

    fn users<'a>(
        &'a self,
        tenant: &'a str,
        admitted: Span,
        after: &'a str,
        max: usize,
    ) -> Answer<'a, Vec<Name>> {
        let question = move || {
            ask(&USER_LIST)
                .bind(tenant)
                .bind(stored(admitted.from))
                .bind(stored(admitted.to))
                .bind(after)
                .bind(rows_max(max.clamp(1, PAGE_MAX)))
        };
        self.found(question, |rows| rows.iter().map(|row| row::name(row, "end_user")).collect())
    }

    fn tenants<'a>(&'a self, after: &'a str, max: usize) -> Answer<'a, Vec<Name>> {
        let question = move || ask(&TENANT_LIST).bind(after).bind(rows_max(max.clamp(1, PAGE_MAX)));
        self.found(question, |rows| rows.iter().map(|row| row::name(row, "tenant")).collect())
    }

    fn calls<'a>(&'a self, query: &'a CallsQuery, after: CallPlace, max: usize) -> Answer<'a, CallPage> {
        let max = max.clamp(1, PAGE_MAX);
        let question = move || {
            ask(&CALL_LIST)
                .bind(&*query.tenant)
                // A page begins where the last one ended, not where the first one did.
                .bind(stored(query.admitted.from.max(after.admitted_at)))
                .bind(stored(query.admitted.to))
                .bind(stored(after.admitted_at))
                .bind(after.number)
                .bind(rows_max(max))
        };
        self.found(question, move |rows| row::calls(rows, max))
    }

    fn kept_since(&self) -> Answer<'_, Micros> {
        JournalDays::kept_since(self)
    }

    fn was_written(&self, id: ReservationId) -> Answer<'_, bool> {
        let question = move || ask(&ENTRY_KNOWN).bind(id.0.to_be_bytes().as_slice());
        self.found(question, |rows| Ok(!rows.is_empty()))
    }

    fn is_whole(&self, id: ReservationId) -> Answer<'_, bool> {
        let question = move || ask(&ENTRY_GONE).bind(id.0.to_be_bytes().as_slice());
        self.found(question, |rows| Ok(rows.is_empty()))
    }
}

impl SqlStore {
    /// The answer to one question, read out of its rows.
    pub(crate) fn found<'a, T: Send + 'a>(
        &'a self,
        question: impl Fn() -> Ask + Send + 'a,
        read: impl Fn(&[Row]) -> Result<T, sqlx::Error> + Copy + Send + Sync + 'a,
    ) -> Answer<'a, T> {
        self.pools.again(move || {
            let question = question();
            Box::pin(async move { read(&self.pools.rows(question).await?).map_err(not_applied) })
        })
    }
}

fn entries_of(rows: &[Row]) -> Result<Vec<Entry>, sqlx::Error> {
    rows.iter().map(|row| row::entry(row).map(|(_, entry)| entry)).collect()
}

fn rows_max(max: usize) -> i64 {
    i64::try_from(max).unwrap_or(i64::MAX)
}
