//! Crossings of thresholds, and what is delivered of them.

use tollbook_store::{
    ALERT_BODY_MAX, ALERT_ID_MAX, ALERTS_MAX, AlertMark, Alerts, Answer, Delivery, StoreError,
    StoreErrorKind, Told,
};

use crate::SqlStore;
use crate::db::{Ask, Row, ask};
use crate::line::stored;
use crate::row;
use crate::sql::{
    ALERT_MARK_AGAIN, ALERT_MARK_FIRST, ALERT_MARK_FORGET, ALERT_MARK_LIST, ALERT_MARK_REARM, DELIVERY_DUE,
    DELIVERY_FORGET, DELIVERY_INSERT, DELIVERY_TOLD, DELIVERY_WAITING,
};

/// States of a delivery.
const WAITING: i64 = 0;
const DELIVERED: i64 = 1;
const GIVEN_UP: i64 = 2;

impl Alerts for SqlStore {
    fn alert_marks<'a>(
        &'a self,
        tenant: &'a str,
        now: u64,
        after: Option<&'a AlertMark>,
    ) -> Answer<'a, Vec<AlertMark>> {
        let most = i64::try_from(ALERTS_MAX).unwrap_or(i64::MAX);
        let (account, period, threshold) =
            after.map_or(("", 0, ""), |mark| (mark.account.as_str(), mark.period, mark.threshold.as_str()));
        self.found(
            move || {
                let whose = ask(&ALERT_MARK_LIST).bind(tenant).bind(stored(now));
                whose.bind(account).bind(stored(period)).bind(threshold).bind(most)
            },
            |rows| rows.iter().map(mark).collect(),
        )
    }

    fn alert_cross<'a>(
        &'a self,
        mark: &'a AlertMark,
        until: u64,
        deliveries: &'a [Delivery],
    ) -> Answer<'a, bool> {
        let too_long = |text: &String| text.len() > ALERT_ID_MAX;
        let is_refused = deliveries.len() > ALERTS_MAX
            || too_long(&mark.threshold)
            || deliveries
                .iter()
                .any(|one| too_long(&one.webhook) || too_long(&one.id) || one.body.len() > ALERT_BODY_MAX);
        if is_refused {
            let refused = StoreErrorKind::Refused("an alert is too long, or told to too many");
            return Box::pin(std::future::ready(Err(StoreError::not_applied(refused))));
        }
        self.pools.again(move || {
            Box::pin(async move {
                let mut tx = self.pools.begin().await?;
                let cross = if mark.turn <= 1 {
                    let whose = ask(&ALERT_MARK_FIRST).bind(mark.tenant.as_str());
                    named(whose, mark).bind(stored(until))
                } else {
                    named(ask(&ALERT_MARK_AGAIN), mark).bind(stored(mark.turn))
                };
                if tx.change(cross).await? != 1 {
                    return Ok(false);
                }
                for Delivery { webhook, id, body, created_at, .. } in deliveries {
                    let one = ask(&DELIVERY_INSERT).bind(webhook.as_str()).bind(id.as_str());
                    tx.change(one.bind(body.as_str()).bind(stored(*created_at))).await?;
                }
                tx.commit().await?;
                Ok(true)
            })
        })
    }

    fn alert_rearm<'a>(&'a self, mark: &'a AlertMark) -> Answer<'a, bool> {
        self.pools.again(move || {
            let rearm = named(ask(&ALERT_MARK_REARM), mark).bind(stored(mark.turn));
            Box::pin(async move { Ok(self.pools.change(rearm).await? == 1) })
        })
    }

    fn deliveries_due<'a>(&'a self, webhook: &'a str, now: u64, most: usize) -> Answer<'a, Vec<Delivery>> {
        let most = i64::try_from(most.min(ALERTS_MAX)).unwrap_or(i64::MAX);
        self.found(
            move || ask(&DELIVERY_DUE).bind(webhook).bind(stored(now)).bind(most),
            |rows| rows.iter().map(delivery).collect(),
        )
    }

    fn delivery_told<'a>(&'a self, webhook: &'a str, id: &'a str, told: Told) -> Answer<'a, ()> {
        let (state, due) = match told {
            Told::Delivered => (DELIVERED, 0),
            Told::GivenUp => (GIVEN_UP, 0),
            Told::Again(at) => (WAITING, at),
        };
        self.pools.again(move || {
            let told = ask(&DELIVERY_TOLD).bind(webhook).bind(id).bind(state).bind(stored(due));
            Box::pin(async move { self.pools.change(told).await.map(|_| ()) })
        })
    }

    fn deliveries_waiting(&self) -> Answer<'_, u64> {
        let count = |rows: &[Row]| {
            rows.first().map_or(Err(sqlx::Error::RowNotFound), |row| row::number(row, "waiting"))
        };
        self.found(|| ask(&DELIVERY_WAITING), count)
    }

    fn alerts_forget(&self, now: u64, since: u64) -> Answer<'_, ()> {
        self.pools.again(move || {
            Box::pin(async move {
                self.pools.change(ask(&ALERT_MARK_FORGET).bind(stored(now))).await?;
                self.pools.change(ask(&DELIVERY_FORGET).bind(stored(since))).await.map(|_| ())
            })
        })
    }
}

/// Binds what a mark is named by.
fn named(ask: Ask, mark: &AlertMark) -> Ask {
    ask.bind(mark.account.as_str()).bind(stored(mark.period)).bind(mark.threshold.as_str())
}

fn mark(row: &Row) -> Result<AlertMark, sqlx::Error> {
    Ok(AlertMark {
        tenant: row.text("tenant")?.to_owned(),
        account: row.text("account")?.to_owned(),
        period: row::number(row, "period")?,
        threshold: row.text("threshold")?.to_owned(),
        turn: row::number(row, "turn")?,
        crossed: row.int("crossed")? != 0,
    })
}

fn delivery(row: &Row) -> Result<Delivery, sqlx::Error> {
    Ok(Delivery {
        webhook: row.text("webhook")?.to_owned(),
        id: row.text("id")?.to_owned(),
        body: row.text("body")?.to_owned(),
        created_at: row::number(row, "created_at")?,
        tries: row::number(row, "tries")?,
    })
}
