//! A tenant's catalog on top of the one that has the models: it says what one catalog of everything says.

use std::sync::Arc;

use crate::world::{daily, draft, named, of_key, of_project, of_user, pool, rpm, tenant, told, tpm};
use tollbook_policy::{
    BoundLine, Call, Catalog, Draft, HistoryRow, LimitDraft, LimitId, Measure, PeriodTable, Scope, diff,
};

fn limits_of_pools() -> Vec<LimitDraft> {
    vec![named("pool", rpm(pool("east"), 1)), named("pool day", daily(pool("east"), Measure::Tokens, 9))]
}

/// Of acme alone; names and periods of their own, and one that globex has too.
fn limits_of_acme() -> Vec<LimitDraft> {
    vec![
        named("tenant", rpm(tenant("acme"), 1)),
        named("project", tpm(of_project("acme", "web"), 1)),
        named("key", daily(of_key("acme", "web", "k1"), Measure::Cost, 1)),
        named("each user", rpm(Scope::EachUser { tenant: "acme".to_owned() }, 9)),
        named("one user", rpm(of_user("acme", "u1"), 1)),
        named("large", LimitDraft { model: Some("large".to_owned()), ..rpm(tenant("acme"), 1) }),
    ]
}

fn limits_of_globex() -> Vec<LimitDraft> {
    vec![named("of globex", rpm(tenant("globex"), 1)), daily(tenant("globex"), Measure::Tokens, 5)]
}

fn base(limits: Vec<LimitDraft>) -> Arc<Catalog> {
    let Draft { pools, models, .. } = draft();
    Arc::new(Catalog::new(Draft { pools, models, limits, ..Draft::default() }).unwrap())
}

fn part(of: &str, limits: Vec<LimitDraft>) -> Draft {
    let Draft { tenants, projects, keys, services, .. } = draft();
    Draft {
        tenants: tenants.into_iter().filter(|tenant| tenant.id == of).collect(),
        projects: projects.into_iter().filter(|project| project.tenant == of).collect(),
        keys: keys.into_iter().filter(|key| key.tenant == of).collect(),
        services: services.into_iter().filter(|service| service.tenant == of).collect(),
        limits,
        ..Draft::default()
    }
}

/// Everything that binds the calls of a secret, without the numbers that limits have.
fn bound(catalog: &Catalog, secret: u8) -> Vec<BoundLine> {
    let key = catalog.key(&[secret; 32]).unwrap();
    let mut lines = Vec::new();
    for model in catalog.models() {
        for user in [None, Some("u1"), Some("u2")] {
            let call = Call { key, service: None, user, model: &model.id };
            lines.extend(catalog.explain(&catalog.resolve(&call, 0).unwrap(), 0));
        }
        for pool in &model.pools {
            lines.extend(catalog.explain(&catalog.resolve_pool(pool, &model.id, 0), 0));
        }
    }
    for line in &mut lines {
        line.limit = LimitId(0);
    }
    lines
}

#[test]
fn a_tenant_on_a_base_is_bound_as_in_one_catalog() {
    let mut all = limits_of_pools();
    all.extend(limits_of_acme());
    all.extend(limits_of_globex());
    let whole = Catalog::new(Draft { limits: all, ..draft() }).unwrap();
    let base = base(limits_of_pools());
    let acme = Catalog::on(&base, part("acme", limits_of_acme())).unwrap();
    let globex = Catalog::on(&base, part("globex", limits_of_globex())).unwrap();
    for (secret, catalog) in [(1, &acme), (2, &acme), (3, &globex)] {
        assert_eq!(bound(catalog, secret), bound(&whole, secret));
        assert!(bound(catalog, secret).len() > 4);
    }
    assert!(acme.key(&[3; 32]).is_none(), "another tenant's key is not among it");
    assert_eq!(acme.model("base-fast").unwrap().id, "base");
    assert_eq!(acme.pools().count(), 2);
}

#[test]
fn limits_and_calendars_are_counted_through_both() {
    let base = base(limits_of_pools());
    let acme = Catalog::on(&base, part("acme", limits_of_acme())).unwrap();
    let ids: Vec<u32> = acme.rules().map(|(id, _)| id.0).collect();
    assert_eq!(ids, [0, 1, 2, 3, 4, 5, 6, 7]);
    for (id, rule) in acme.rules() {
        assert_eq!(acme.rule(id).unwrap().limit.name, rule.limit.name);
        let calendar = rule.calendar.map(|id| acme.calendar(id).unwrap());
        assert_eq!(calendar.is_some(), rule.limit.name.contains("day") || rule.limit.name == "key");
    }
    assert_eq!(acme.own_rules().map(|(id, _)| id.0).collect::<Vec<_>>(), [2, 3, 4, 5, 6, 7]);
    assert!(acme.rule(LimitId(8)).is_none());
    // One day of UTC serves both.
    assert_eq!(acme.calendars().count(), 1);
    let table = PeriodTable::new(acme.calendars(), 86_400 * 10);
    assert!(table.valid(86_400 * 10 + 5));
    assert_eq!(acme.quotas().count(), 2);
}

/// A limit below is not one of the tenant's: it has its own history.
#[test]
fn history_is_that_of_the_own_limits() {
    let base = base(limits_of_pools());
    let acme = Catalog::on(&base, part("acme", limits_of_acme())).unwrap();
    let rows = diff(&[], &acme, 100);
    let names = |rows: &[HistoryRow]| rows.iter().map(|row| row.limit.clone()).collect::<Vec<_>>();
    assert_eq!(names(&rows), ["tenant", "project", "key", "each user", "one user", "large"]);
    let narrower = limits_of_acme().split_off(1);
    let next = Catalog::on(&base, part("acme", narrower)).unwrap();
    assert_eq!(names(&diff(&rows, &next, 200)), ["tenant"], "removed; the pool's were never its");

    // The window of a limit changes: what is left behind is found by its number, above all others.
    let mut wider = limits_of_acme();
    wider[0] = named("tenant", LimitDraft { shape: crate::world::rate(600), ..rpm(tenant("acme"), 1) });
    let changed = Catalog::on(&base, part("acme", wider)).unwrap();
    let mut all = rows.clone();
    all.extend(diff(&rows, &changed, 200));
    let (changed, openings) = changed.with_history(&all, 201);
    let left: Vec<_> = changed.rules().filter(|(_, rule)| rule.is_left_behind()).collect();
    assert_eq!(left.iter().map(|(id, rule)| (id.0, rule.until)).collect::<Vec<_>>(), [(8, 260)]);
    assert_eq!(openings.iter().map(|opening| opening.limit.0).collect::<Vec<_>>(), [4], "the key's day");
    let key = changed.key(&[1; 32]).unwrap();
    let call = Call { key, service: None, user: None, model: "base" };
    let lines = changed.explain(&changed.resolve(&call, 201).unwrap(), 201);
    assert_eq!(lines.iter().filter(|line| line.name == "tenant").count(), 2, "both windows bind");
}

#[test]
fn what_is_wrong_on_a_base_is_told() {
    let base = base(limits_of_pools());
    let problems = |limits| told(&Catalog::on(&base, part("acme", limits)).unwrap_err());
    let same = Catalog::on(&base, part("acme", vec![named("pool", rpm(tenant("acme"), 1))]));
    assert!(same.is_ok(), "a name is one of the tenant's own");
    let unknown = problems(vec![LimitDraft { model: Some("nothing".to_owned()), ..rpm(tenant("acme"), 1) }]);
    assert!(unknown[0].contains("nothing"), "{unknown:?}");
    let alias = problems(vec![LimitDraft { model: Some("base-fast".to_owned()), ..rpm(tenant("acme"), 1) }]);
    assert!(alias[0].contains("base"), "{alias:?}");
    let elsewhere = problems(vec![rpm(tenant("globex"), 1)]);
    assert!(elsewhere[0].contains("globex"), "{elsewhere:?}");
}
