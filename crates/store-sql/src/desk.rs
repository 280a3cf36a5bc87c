//! Versions of the price book, and leases of jobs.

use std::time::Duration;

use tollbook_store::{
    Answer, GatewayId, JOB_NAME_MAX, JobLeases, PRICE_BOOK_MAX, PriceBooks, PriceVersion, StoreError,
    StoreErrorKind,
};

use crate::db::ask;
use crate::fleet::millis;
use crate::line::stored;
use crate::sql::{JOB_FREE, JOB_LEAVE, JOB_TAKE, PRICE_BOOK_KEEP, PRICE_BOOK_LIST, PRICE_BOOK_ONE};
use crate::{SqlStore, row};

impl PriceBooks for SqlStore {
    fn price_book_keep<'a>(&'a self, version: u64, document: &'a str) -> Answer<'a, bool> {
        if document.len() > PRICE_BOOK_MAX {
            let refused = StoreErrorKind::Refused("a price book is too long");
            return Box::pin(std::future::ready(Err(StoreError::not_applied(refused))));
        }
        self.pools.again(move || {
            let keep = ask(&PRICE_BOOK_KEEP).bind(stored(version)).bind(document);
            Box::pin(async move { Ok(self.pools.change(keep).await? == 1) })
        })
    }

    fn price_book(&self, version: u64) -> Answer<'_, Option<PriceVersion>> {
        self.found(
            move || ask(&PRICE_BOOK_ONE).bind(stored(version)),
            |rows| {
                let one = rows.first().map(|row| {
                    Ok(PriceVersion {
                        version: row::number(row, "version")?,
                        first_at: row::number(row, "first_at")?,
                        document: row.text("document")?.to_owned(),
                    })
                });
                one.transpose()
            },
        )
    }

    fn price_versions(&self, most: usize) -> Answer<'_, Vec<(u64, u64)>> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        self.found(
            move || ask(&PRICE_BOOK_LIST).bind(most),
            |rows| {
                rows.iter()
                    .map(|row| Ok((row::number(row, "version")?, row::number(row, "first_at")?)))
                    .collect()
            },
        )
    }
}

impl JobLeases for SqlStore {
    fn job_lease<'a>(&'a self, job: &'static str, gateway: GatewayId, life: Duration) -> Answer<'a, bool> {
        if job.len() > JOB_NAME_MAX {
            let refused = StoreErrorKind::Refused("a job's name is too long");
            return Box::pin(std::future::ready(Err(StoreError::not_applied(refused))));
        }
        let of = move |statement| ask(statement).bind(job).bind(gateway.cast_signed()).bind(millis(life));
        self.pools.again(move || {
            Box::pin(async move {
                let mut tx = self.pools.begin().await?;
                tx.change(of(&JOB_FREE)).await?;
                let taken = tx.change(of(&JOB_TAKE)).await?;
                tx.commit().await?;
                Ok(taken == 1)
            })
        })
    }

    fn job_leave<'a>(&'a self, job: &'static str, gateway: GatewayId) -> Answer<'a, ()> {
        self.changed(move || ask(&JOB_LEAVE).bind(job).bind(gateway.cast_signed()))
    }
}
