//! The rules as account books. Each test is named after the rule it proves.

use crate::book_desk::over_book;

#[test]
fn l01_all_or_nothing() {
    over_book(
        "
        leg rpm  requests 61x1 soft 2
        leg tok  tokens   61x1 soft 100
        leg none requests 61x1 soft 0
        0  reserve 1 rpm tok=60   => admit 0 60
        0  reserve 2 rpm tok=60   => deny tok busy 1 likely ceiling 100 room 1 40
        0  book rpm               => posted 1 held 0 live 1
        0  book tok               => posted 0 held 60 live 1
        0  reserve 3 rpm none     => deny none too_large ceiling 0 room 1 0
        0  book none              => none
        0  events                 => 1
        1  reserve 2 rpm tok=40   => admit 0 40
        1  reserve 3 rpm tok=0    => deny rpm busy 60 firm all ceiling 2 room 0 0
        ",
    );
}

#[test]
fn l01_two_limits_over_one_account_are_one_leg() {
    over_book(
        "
        leg tok tokens day soft 500 ; hard 300 worst charge
        0  reserve 1 tok=100+20^50:200 => admit 200     # the largest that a limit asks for
        0  reserve 2 tok=100+20^50:150 => deny tok busy 1 likely ceiling 300 room 100
        0  reserve 2 tok=90+0:100      => admit 100
        5  renew 1 60 sent             => holds 200
        65 expire 1                    => expired posted tok 120
        ",
    );
}

#[test]
fn l02_a_repeat_gets_the_first_answer() {
    over_book(
        "
        leg rpm requests 61x1 soft 2
        leg tok tokens   61x1 soft 100
        0    reserve 1 rpm tok=10+20   => admit 0 30
        4    limit rpm soft 0
        5    reserve 1 rpm tok=10+20   => admit 0 30    # before any limit is looked at
        5    book rpm                  => posted 1 held 0 live 1
        5    reserve 1 rpm tok=11+20   => conflict 1
        5    reserve 1 tok=10+20 rpm   => conflict 0
        5    reserve 1 rpm             => conflict 1
        5    reserve 1.1 rpm tok=10+20 => deny rpm too_large
        6    settle 1 1 25             => held
        6    reserve 1 rpm tok=10+20   => ended settled
        1805 reserve 1 rpm tok=11+20   => ended settled
        1806 reserve 1 rpm tok=10+20   => deny rpm too_large   # forgotten 30 min after its end
        ",
    );
}

#[test]
fn l02_a_denied_id_is_decided_anew() {
    over_book(
        "
        leg calls calls held soft 1
        0  reserve 1 calls => admit 1
        0  reserve 2 calls => deny calls busy 1 likely
        4  settle 1 0      => held
        4  reserve 2 calls => admit 1
        4  reserve 3 calls => deny calls busy 4 likely   # the mean hold
        ",
    );
}

#[test]
fn l02_growth_and_ceilings_do_not_change_what_a_repeat_is() {
    over_book(
        "
        leg tok tokens 61x1 soft 100
        0  reserve 1 tok=10+20^60 => admit 30
        1  renew 1 60 output:50   => holds 60
        2  limit tok soft 5
        2  reserve 1 tok=10+20^60 => admit 60
        ",
    );
}

#[test]
fn l03_one_end_and_one_correction() {
    over_book(
        "
        leg tok tokens 61x1 soft 900
        leg day tokens day  hard 900 charge
        0   reserve 1 tok=50 day=50 => admit 50 50
        1   settle 1 40 40          => held posted day 40
        1   settle 1 40 40          => ended settled
        1   release 1 failed        => ended settled
        1   expire 1                => ended settled
        1   renew 1 60              => ended settled
        1   book tok                => posted 40 held 0
        1   period day 0            => posted 40 held 0
        2   reserve 2 tok=50 day=50 => admit 50 50
        2   release 2 failed        => held
        2   settle 2 50 50          => ended released
        3   reserve 3 tok=50 day=50 => admit 50 50
        3   renew 3 20 sent         => holds 50 50
        23  expire 3                => expired posted day 50
        24  settle 3 70 70          => late over 0 20 posted day 20
        24  settle 3 70 70          => ended corrected
        24  release 3 failed        => ended corrected
        24  period day 0            => posted 110 held 0
        24  settle 9 1 1            => unknown
        24  alarm unknown_claims    => 1
        ",
    );
}

#[test]
fn l04_settle_posts_in_full() {
    over_book(
        "
        leg tok tokens 61x1 soft 100
        leg day tokens day  hard 100
        0    reserve 1 tok=50 day=50 => admit 50 50
        1    settle 1 250 250        => held over 200 200 posted day 250
        1    book tok                => posted 250 held 0
        1    book day                => posted 250 held 0
        1    reserve 2 tok=1         => deny tok busy 61 firm all ceiling 100 room 0
        1    reserve 2 day=1         => deny day spent 86399 firm all ceiling 100 room 0
        61.9 reserve 2 tok=1         => deny tok busy 0.1 firm
        62   reserve 2 tok=1         => admit 1
        ",
    );
}

#[test]
fn l05_the_hold_remembers_where() {
    over_book(
        "
        leg tok tokens 3x10 soft 100
        leg day cost   day  hard 1000
        -2   reserve 1 tok=50 day=400 => admit 50 400
        0    reserve 2 day=1000       => admit 1000       # old holds do not count in a new period
        1    limit day hard 1
        5    settle 1 50 350          => held posted day 350
        5    period day -86400        => posted 350 held 0
        5    period day 0             => posted 0 held 1000
        29.9 book tok                 => posted 50 held 0   # the bucket of the settle, not of the door
        30   book tok                 => posted 0 held 0
        ",
    );
}

#[test]
fn l06_requests_are_known_at_the_door() {
    over_book(
        "
        leg rpm requests 3x1 soft 9
        leg ref requests 3x1 refund soft 9
        leg day requests day hard 9
        0   reserve 1 rpm ref day  => admit 0 0 0
        0   book rpm               => posted 1 held 0
        0   book day               => posted 1 held 0
        0   release 1 never        => held
        0   book rpm               => posted 0 held 0
        0   book day               => posted 0 held 0
        1   reserve 2 rpm ref day  => admit 0 0 0
        1   release 2 failed       => held posted day 1
        1   book rpm               => posted 1 held 0
        1   book ref               => posted 0 held 0
        1   book day               => posted 1 held 0
        2   reserve 3 rpm ref day  => admit 0 0 0
        4   settle 3 0 0 0         => held posted day 1   # a settle gives no request back
        4   book rpm               => posted 1 held 0
        4   book day               => posted 2 held 0
        5   reserve 4 rpm ref day  => admit 0 0 0
        8   release 4 never        => held                # its bucket has left the ring
        8   book rpm               => posted 0 held 0
        8   book day               => posted 2 held 0
        8   alarm dropped_refunds  => 2
        ",
    );
}

#[test]
fn l06_requests_never_go_below_zero() {
    over_book(
        "
        leg day requests day hard 9
        0  reserve 1 day    => admit 0
        0  adjust 1 day 0 -1 => applied
        0  release 1 never  => held posted day 1
        0  book day         => posted 0 held 0
        0  alarm dropped_refunds => 1
        ",
    );
}

#[test]
fn l07_a_door_hold_releases_everything() {
    over_book(
        "
        leg rpm requests 61x1 soft 5
        leg day tokens   day  hard 900 charge
        0    reserve 1 rpm day=100+50 => admit 0 150
        14.9 expire 1                 => not due
        15   due                      => 1.0
        15   book day                 => posted 0 held 150 live 1   # counts until it is swept
        15   expire 1                 => expired
        15   book rpm                 => posted 0 held 0 live 0
        15   book day                 => posted 0 held 0 live 0
        15   expire 1                 => ended expired
        15   expire 7                 => unknown
        ",
    );
}

#[test]
fn l07_a_sent_hold_releases_or_charges() {
    over_book(
        "
        leg cnt requests day  hard 5
        leg chg tokens   day  hard 900 worst charge
        leg rel tokens   hour hard 900
        leg tok tokens   61x1 soft 900 charge
        0    reserve 1 cnt chg=100+50:300 rel=100+50 tok=100+50 => admit 0 300 150 150
        5    renew 1 60 sent          => holds 0 300 150 150
        64.9 expire 1                 => not due
        65   expire 1                 => expired posted cnt 1 posted chg 150
        65   book cnt                 => posted 1 held 0
        65   book chg                 => posted 150 held 0   # the expected demand, not what was held
        65   book rel                 => posted 0 held 0
        65   book tok                 => posted 150 held 0
        ",
    );
}

#[test]
fn l07_a_renewal_revives_what_is_due() {
    over_book(
        "
        leg calls calls held soft 1
        0   reserve 1 calls    => admit 1
        20  reserve 2 calls    => deny calls busy 1 likely ceiling 1 room 0 due 1.0
        20  renew 1 60         => holds 1
        20  expire 1           => not due
        20  renew 1 5          => holds 1        # a life is never cut short
        79  expire 1           => not due
        80  expire 1           => expired
        80  renew 1 60         => ended expired
        80  renew 9 60         => unknown
        80  reserve 2 calls    => admit 1
        ",
    );
}

#[test]
fn l07_a_denial_tells_sixteen_due_holds() {
    let mut scenario = "leg calls calls held soft 20\n".to_owned();
    for id in 1..=20 {
        scenario += &format!("0 reserve {id} calls life:{id} => admit 1\n");
    }
    scenario += "18 reserve 99 calls => deny calls busy 1 likely ceiling 20 room 0 \
                 due 1.0 due 2.0 due 3.0 due 4.0 due 5.0 due 6.0 due 7.0 due 8.0 due 9.0 due 10.0 due 11.0 due 12.0 \
                 due 13.0 due 14.0 due 15.0 due 16.0\n";
    over_book(&scenario);
}

#[test]
fn l08_late_settle_posts_the_difference() {
    over_book(
        "
        leg cnt requests day  hard 5
        leg day cost     day  hard 900 charge
        leg tok tokens   61x1 soft 900 charge
        0    reserve 1 cnt day=100 tok=100 => admit 0 100 100
        5    renew 1 60 sent               => holds
        65   expire 1                      => expired posted cnt 1 posted day 100
        70   settle 1 1 130 130            => late over 0 30 0 posted day 30
        70   book cnt                      => posted 1 held 0
        70   book day                      => posted 130 held 0
        70   book tok                      => posted 100 held 0    # nothing to rates
        1864 settle 1 1 130 130            => ended corrected
        1865 settle 1 1 130 130            => unknown              # 30 min from the end
        ",
    );
}

#[test]
fn l08_late_settle_of_a_door_hold_charges_its_request() {
    over_book(
        "
        leg cnt requests day hard 5
        leg day cost     day hard 900
        0   reserve 1 cnt day=100 => admit 0 100
        15  expire 1              => expired
        15  book cnt              => posted 0 held 0
        16  settle 1 1 90         => late posted cnt 1 posted day 90
        16  book cnt              => posted 1 held 0
        ",
    );
}

#[test]
fn l08_late_release() {
    over_book(
        "
        leg cnt requests day hard 5
        leg day cost     day hard 900 charge
        0   reserve 1 cnt day=100 => admit 0 100
        0   reserve 2 cnt day=100 => admit 0 100
        1   renew 1 20 sent       => holds
        1   renew 2 20 sent       => holds
        21  expire 1              => expired posted cnt 1 posted day 100
        21  expire 2              => expired posted cnt 1 posted day 100
        22  release 1 failed      => late posted day -100
        22  release 2 never       => late posted cnt -1 posted day -100
        22  book cnt              => posted 1 held 0
        22  book day              => posted 0 held 0
        22  release 2 never       => ended corrected
        ",
    );
}

#[test]
fn l08_a_late_settle_teaches_the_estimator() {
    over_book(
        "
        leg tok tokens 61x1 soft 9000
        0   reserve 1 tok=10~key     => admit 510
        15  expire 1                 => expired
        16  settle 1 110 learn:100   => late
        16  reserve 2 tok=10~key     => admit 210
        16  reserve 3 tok=10~young   => admit 210     # the prior
        17  settle 2 60 learn:50     => held
        17  reserve 4 tok=10~key     => admit 180     # 2 × (0.7 × 100 + 0.3 × 50)
        ",
    );
}

#[test]
fn l09_soft_holds_grow_always() {
    over_book(
        "
        leg tok tokens 61x1 soft 100
        0   reserve 1 tok=10+50^1000    => admit 60
        5   renew 1 60 sent output:400  => holds 410      # above the ceiling
        5   renew 1 60 sent output:300  => holds 410      # never down
        5   renew 1 60 sent output:9999 => holds 1010     # up to the cap
        5   reserve 2 tok=1             => deny tok busy 1 likely
        6   settle 1 400                => held over 340  # forced growth is not decided
        ",
    );
}

#[test]
fn l09_hard_growth_is_decided_together() {
    over_book(
        "
        leg tok tokens 61x1 soft 100
        leg one tokens day  hard 300
        leg two cost   day  hard 500
        leg bud cost   hour hard 1000 worst
        0   reserve 1 tok=10+50^900 one=10+50^900 two=10+50^900 bud=10+50^900:950 => admit 60 60 60 950
        5   renew 1 60 sent output:200 => holds 210 210 210 950
        6   renew 1 60 output:400      => short 1
        6   book tok                   => posted 0 held 410
        6   book one                   => posted 0 held 210
        6   book two                   => posted 0 held 210     # it had room, but not alone
        7   renew 1 60 output:290      => holds 410 300 300 950
        8   settle 1 410 410 300 960   => held over 350 110 0 10
        ",
    );
}

#[test]
fn l10_drift_is_found_and_repaired() {
    over_book(
        "
        leg calls calls held soft 5
        0  reserve 1 calls => admit 1
        0  drift           =>
        0  damage 7
        0  drift           => held 7 sum 1
        0  repair stale    => false      # another version than it saw
        0  book calls      => posted 0 held 7
        0  repair          => true
        0  book calls      => posted 0 held 1
        0  reserve 2 calls => admit 1
        ",
    );
}

#[test]
fn l11_below_zero_counts_as_zero() {
    over_book(
        "
        leg tok tokens 61x1 soft 100
        0  reserve 1 tok=50    => admit 50
        1  settle 1 50         => held
        1  damage -40
        1  reserve 2 tok=60    => deny tok busy 61 firm all ceiling 100 room 50
        1  book tok            => posted 50 held -40     # kept as evidence
        1  alarm negative_held => 1
        1  reserve 3 tok=50    => admit 50
        1  book tok            => posted 50 held 10
        ",
    );
}

#[test]
fn l12_the_engine_picks_the_period_of_its_own_time() {
    over_book(
        "
        leg day cost day hard 100
        0      calendar -172800
        0      reserve 1 day=10    => recalendar
        0      book day            => none
        0      events              => 0
        0      calendar -86400              # a day behind still has today
        0      reserve 1 day=10    => admit 10
        0      calendar 0
        -10    reserve 2 day=10    => admit 10      # never older than the newest
        -10    period day 0        => posted 0 held 20
        -10    period day -86400   => none
        -259200 reserve 3 day=10   => admit 10      # nor however far the clock steps back
        -259200 period day 0       => posted 0 held 30
        86399  reserve 5 day=10    => admit 10
        86400  reserve 4 day=10    => admit 10
        86400  period day 86400    => posted 0 held 10
        ",
    );
}

#[test]
fn l12_a_step_back_neither_keeps_holds_nor_forgets() {
    over_book(
        "
        leg calls calls held soft 5
        0     reserve 1 calls  => admit 1
        0     reserve 2 calls  => admit 1
        0     settle 2 0       => held
        -3600 reserve 3 calls life:60 => admit 1     # an hour back
        -3586 due              =>
        -3586 expire 1         => not due
        -3585 expire 1         => expired            # 15 s after it was taken
        -3585 settle 2 0       => ended settled
        -1801 settle 2 0       => ended settled
        -1800 settle 2 0       => unknown            # 30 min after it ended
        -1800 alarm clock_steps_back => 1
        ",
    );
}

#[test]
fn l12_a_ring_stands_still_or_restarts() {
    over_book(
        "
        leg rpm requests 4x10 soft 3
        1000 reserve 1 rpm => admit 0
        1000 reserve 2 rpm => admit 0
        930  reserve 3 rpm => admit 0                  # 7 buckets back: stands still
        930  reserve 4 rpm => deny rpm busy 40 likely  # clamped to the ring, so no more than likely
        100  reserve 4 rpm => deny rpm busy 40 firm    # 90 buckets back: restarts, also on a denial
        100  alarm ring_restarts => 1
        100  book rpm      => posted 3 held 0
        139  reserve 4 rpm => deny rpm busy 1 firm
        140  reserve 4 rpm => admit 0
        1000 reserve 5 rpm => admit 0
        100  reserve 6 rpm => admit 0
        100  alarm ring_restarts => 2
        139  book rpm      => posted 2 held 0
        140  book rpm      => posted 0 held 0
        ",
    );
}

#[test]
fn l13_amounts_are_bounded_at_the_edge() {
    over_book(
        "
        leg fee cost life hard 9007199254740991 worst
        0  reserve 1 fee=9007199254741    => refused leg 0 has an amount above 2^53 - 1
        0  reserve 1 fee=9007199254740+1  => refused leg 0 has an amount above
        0  reserve 1 fee=1:9007199254740991 => admit 9007199254740991
        0  reserve 2 fee=1:9007199254740992 => refused leg 0 has an amount above
        0  reserve 2 fee=1                => deny fee busy 1 likely ceiling 9007199254740991 room 0
        1  settle 1 9007199254740992      => refused leg 0 has an amount above
        1  settle 1 9007199254740991      => held
        1  adjust 1 fee life 5            => applied
        1  book fee                       => posted 9007199254740991 held 0
        1  alarm saturated                => 1
        1  adjust 2 fee life 9007199254740992 => refused
        1  limit fee hard 9007199254740992 worst
        1  reserve 2 fee=1                => refused leg 0 has an amount above
        ",
    );
}

#[test]
fn l14_never_comes_first_then_the_longest_wait() {
    over_book(
        "
        leg rpm  requests 61x1 soft 1
        leg slow requests 11x10 soft 1 ; hard 2
        leg tok  tokens   61x1 soft 100
        leg life cost     life hard 100
        leg day  cost     day  hard 100
        0  reserve 1 rpm slow tok=100 life=100 day=100 => admit 0 0 100 100 100
        1  reserve 2 rpm          => deny rpm busy 60 firm all ceiling 1 room 0
        1  reserve 2 rpm slow     => deny slow busy 109 firm all ceiling 1 room 0 0
        1  reserve 2 slow rpm     => deny slow busy 109 firm all ceiling 1 room 0 0
        1  reserve 2 rpm tok=50   => deny rpm busy 60 firm ceiling 1 room 0 0      # tok is only likely
        1  reserve 2 rpm tok=101  => deny tok too_large ceiling 100
        1  reserve 2 life=1       => deny life busy 1 likely
        1  reserve 2 day=1 rpm    => deny rpm busy 60 firm ceiling
        2  settle 1 1 1 100 100 100
        2  reserve 2 rpm life=1   => deny life exhausted ceiling 100
        2  reserve 2 life=1 tok=101 => deny tok too_large ceiling 100
        2  reserve 2 rpm day=1    => deny day spent 86398 firm all ceiling 100 room 0 0
        86400 reserve 2 rpm day=1 => admit 0 1
        ",
    );
}

#[test]
fn l14_ties_go_to_the_earlier_leg_then_the_lower_ceiling() {
    over_book(
        "
        leg one requests 61x1 soft 1
        leg two requests 61x1 hard 2 ; soft 1
        0  reserve 1 one two => admit 0 0
        0  reserve 2 two one => deny two busy 61 firm all ceiling 1
        0  reserve 2 one two => deny one busy 61 firm all ceiling 1
        0  limit two soft 3 ; hard 2
        0  reserve 2 two     => admit 0
        0  limit two soft 2 ; hard 1
        0  reserve 3 two     => deny two busy 61 firm all ceiling 1
        ",
    );
}

#[test]
fn l14_a_firm_wait_is_exact() {
    over_book(
        "
        leg tok tokens 61x1 soft 100
        0     reserve 1 tok=30
        0.5   settle 1 30
        10.25 reserve 2 tok=60
        20.75 settle 2 60
        20.75 reserve 3 tok=40   => deny tok busy 40.25 firm all ceiling 100 room 10    # the first posting leaves
        20.75 reserve 3 tok=41   => deny tok busy 60.25 firm                            # the second must leave too
        60.999999 reserve 3 tok=40 => deny tok busy 0.000001 firm
        61    reserve 3 tok=40   => admit 40
        ",
    );
}

#[test]
fn l14_a_firm_wait_is_exact_under_weights() {
    over_book(
        "
        leg old tokens 3x10:oldest soft 100
        leg dec tokens 4x10:decay soft 100
        0     reserve 1 old=80 dec=80
        0.5   settle 1 80 80
        10    reserve 5 dec=60   => deny dec busy 10 firm       # 80 × 3/4 at 10, 80 × 2/4 at 20
        19.999999 reserve 5 dec=60 => deny dec busy 0.000001 firm
        20    reserve 5 dec=60   => admit 60
        20    reserve 4 old=60   => deny old busy 5 firm        # half of the oldest bucket is inside at 25
        24.999999 reserve 4 old=60 => deny old busy 0.000001 firm
        25    reserve 4 old=60   => admit 60
        ",
    );
}

#[test]
fn l14_likely_waits_come_from_the_mean_hold() {
    over_book(
        "
        leg calls calls  held soft 2
        leg tok   tokens 61x1 soft 100
        leg min   tokens minute hard 100
        0    reserve 1 calls tok=10 min=10
        0    reserve 2 calls life:99
        0    reserve 3 calls    => deny calls busy 1 likely ceiling 2 room 0
        40   settle 1 0 0 0
        40   reserve 4 calls tok=99 min=99 life:99
        40   reserve 5 calls    => deny calls busy 20 likely        # 40 s over two live holds
        40   reserve 5 tok=99   => deny tok busy 40 likely
        40   reserve 5 min=99   => deny min busy 20 likely          # the period is over then
        59.5 reserve 5 min=99   => deny min busy 0.5 likely
        60   reserve 5 min=99   => admit 99
        ",
    );
}

#[test]
fn l14_count_denied_posts_once_per_bucket() {
    over_book(
        "
        leg rpm requests 11x10 soft 2 count
        leg tok tokens   61x1  soft 50
        0   reserve 1 rpm tok=10  => admit 0 10
        0   reserve 2 rpm tok=10  => admit 0 10
        1   reserve 3 rpm tok=10  => deny rpm busy 109 likely ceiling 2 room 0 30
        1   book rpm              => posted 3 held 0
        2   reserve 3 rpm tok=10  => deny rpm busy 108 likely
        2   book rpm              => posted 3 held 0     # once in this bucket
        12  reserve 3 rpm tok=10  => deny rpm busy 98 likely
        12  book rpm              => posted 4 held 0
        12  book tok              => posted 0 held 20    # only accounts of limits that count
        12  reserve 4 rpm tok=99  => deny tok too_large
        ",
    );
}

#[test]
fn l15_small_limits_learn() {
    over_book(
        "
        leg tok  tokens 61x1 soft 100 ; hard 900
        leg hard tokens day  hard 100
        0  reserve 1 tok=30~new    => admit 100       # 500 expected, 70 have room on an empty window
        0  reserve 2 tok=30~new    => deny tok busy 1 likely ceiling 100 room 0    # what is left shrinks nothing
        0  reserve 2 tok=101~new   => deny tok too_large ceiling 100
        0  reserve 2 hard=30~new   => deny hard too_large ceiling 100
        1  settle 1 50 learn:20    => held
        70 reserve 2 tok=30~new    => admit 70
        ",
    );
}

#[test]
fn l17_shadow_is_written_and_never_seen() {
    over_book(
        "
        leg rpm requests 61x1 soft 3
        leg tok tokens   61x1 soft 100 shadow
        leg mix tokens   day  hard 500 ; soft 100 shadow
        0  reserve 1 rpm tok=80 mix=80 => admit 0 80 80
        0  reserve 2 rpm tok=80 mix=80 => admit 0 80! 80!
        0  shadow tok                  => denied 1 demand 80
        0  shadow mix                  => denied 1 demand 80
        0  book tok                    => posted 0 held 160     # above its ceiling
        0  reserve 3 rpm tok=200       => admit 0 200!
        0  shadow tok                  => denied 2 demand 280
        0  reserve 4 rpm tok=80        => deny rpm busy 61 firm all ceiling 3 room 0 9007199254740991
        0  shadow tok                  => denied 2 demand 280   # not on a denial by others
        0  book tok                    => posted 0 held 360
        1  settle 1 1 90 90            => held over 0 10 10
        1  book tok                    => posted 90 held 280
        ",
    );
}

#[test]
fn l18_rebook_keeps_the_difference() {
    over_book(
        "
        leg rpm  requests 61x1 soft 1
        leg tok  tokens   61x1 soft 100
        leg day  cost     day  hard 100
        leg a    calls    held soft 1
        leg b    calls    held soft 1
        0   reserve 1.0 rpm tok=80 day=60 a       => admit 0 80 60 1
        1   rebook 1.0 1.1 unused : rpm tok=90 day=70 b => admit 0 90 70 1 before held
        1   book rpm                              => posted 1 held 0 live 1    # not posted again
        1   book tok                              => posted 0 held 90
        1   book day                              => posted 0 held 70
        1   book a                                => posted 0 held 0
        1   book b                                => posted 0 held 1
        2   rebook 1.0 1.1 unused : rpm tok=90 day=70 b => admit 0 90 70 1 before ended rebooked
        2   rebook 1.1 1.2 used 1 30 20 0 : rpm tok=80 day=70 b => deny tok busy 61 firm all ceiling 100 room 0 70 80 1
        2   book tok                              => posted 0 held 90          # a denial writes nothing at all
        2   events                                => 2
        2   rebook 1.1 1.2 used 1 30 20 0 : rpm tok=70 day=70 b => admit 0 70 70 1 before held posted day 20
        2   book tok                              => posted 30 held 70
        2   book day                              => posted 20 held 70
        3   reserve 1.0 rpm tok=80 day=60 a       => ended rebooked
        3   release 1.2 never                     => held
        3   book rpm                              => posted 0 held 0           # carried over, given back
        ",
    );
}

#[test]
fn l18_a_named_period_is_kept() {
    over_book(
        "
        leg cnt requests day hard 9
        leg day cost     day hard 100
        leg hr  cost     hour hard 100
        -5  reserve 1.0 cnt day=60         => admit 0 60
        5   rebook 1.0 1.1 unused : cnt day=70 hr=70 => admit 0 70 70 before held
        5   period day -86400              => posted 0 held 70
        5   period hr 0                    => posted 0 held 70
        5   rebook 1.1 1.2 used 1 20 0 : cnt day=81 => deny day exhausted ceiling 100
        6   settle 1.1 1 65 65             => held posted cnt 1 posted day 65 posted hr 65
        6   period day -86400              => posted 65 held 0
        6   period cnt -86400              => posted 1 held 0
        ",
    );
}

#[test]
fn l18_an_attempt_that_ended_is_not_rebooked() {
    over_book(
        "
        leg rpm requests 61x1 soft 9
        leg tok tokens   61x1 soft 100
        0   reserve 1.0 rpm tok=80             => admit 0 80
        0   rebook 1.0 1.0 unused : rpm tok=80 => refused the next attempt is not above the ended one
        0   rebook 1.0 1.1 used 1 : rpm tok=80 => refused one amount per leg is needed
        15  expire 1.0                         => expired
        15  rebook 1.0 1.1 unused : rpm tok=80 => ended expired
        15  settle 1.0 1 20                    => late
        15  reserve 1.1 rpm tok=80             => admit 0 80
        15  rebook 7.0 7.1 unused : rpm tok=10 => admit 0 10 before unknown
        15  rebook 1.1 1.2 unused : rpm        => admit 0 before held
        15  book tok                           => posted 0 held 10
        15  rebook 1.0 1.2 unused : rpm        => admit 0 before ended corrected
        15  rebook 1.2 1.3 unused : tok=999    => deny tok too_large
        15  rebook 1.0 1.2 unused : tok=1      => conflict 0
        ",
    );
}

#[test]
fn a_full_log_changes_nothing() {
    over_book(
        "
        leg tok tokens 61x1 soft 100 count
        leg day tokens day  hard 100
        0   reserve 1 tok=60 day=60 => admit 60 60
        0   log full
        1   reserve 2 tok=10 day=10 => refused the log is full
        1   reserve 2 tok=90        => refused the log is full
        1   reserve 1 tok=60 day=60 => admit 60 60
        1   renew 1 60              => refused the log is full
        1   settle 1 60 60          => refused the log is full
        1   release 1 never         => refused the log is full
        1   rebook 1.0 1.1 unused : tok=10 => refused the log is full
        1   adjust 1 day 0 5        => refused the log is full
        15  expire 1                => refused the log is full
        15  log open
        15  book tok                => posted 0 held 60
        15  expire 1                => expired
        15  log full
        15  settle 1 60 60          => refused the log is full
        15  log open
        15  settle 1 60 60          => late posted day 60
        ",
    );
}

#[test]
fn adjust_is_idempotent_and_opens_a_quota() {
    over_book(
        "
        leg day cost day hard 1000
        leg rpm requests 61x1 soft 5
        0      adjust 1 day 0 700           => refused the account does not exist or is no quota
        0      adjust 1 day 0 700 open      => applied        # opening total of a new quota
        0      adjust 1 day 0 700 open      => known
        0      book day                     => posted 700 held 0
        0      reserve 1 day=301            => deny day spent 86400 firm
        0      adjust 2 day 0 -200          => applied        # a top-up
        0      reserve 1 day=301            => admit 301
        1799   adjust 1 day 0 700           => known
        1800   adjust 1 day 0 0             => applied        # remembered for 30 min
        1800   adjust 3 day 86400 5         => refused the account does not exist or is no quota
        1800   adjust 3 day 86400 5 open    => applied
        1800   reserve 2 rpm                => admit 0
        1800   adjust 4 rpm 0 5             => refused the account does not exist or is no quota
        1800   adjust 5 day -86400 5 open   => applied        # a period that is gone: the entry, no balance
        1800   alarm dropped_postings       => 1
        1800   period day -86400            => none
        ",
    );
}

#[test]
fn old_periods_are_kept_while_they_are_needed() {
    over_book(
        "
        leg min tokens minute hard 100
        0     reserve 1 min=10 life:99999   => admit 10
        60    reserve 2 min=10 life:99999   => admit 10
        60    settle 2 10
        5520  reserve 3 min=10 life:99999   => admit 10
        5520  period min 0                  => posted 0 held 10    # held
        5520  period min 60                 => none                # ended 90 min ago
        5520  settle 3 10
        5521  settle 1 15                   => held over 5 posted min 15
        5521  period min 0                  => posted 15 held 0
        5580  reserve 4 min=10              => admit 10
        5580  period min 0                  => none
        ",
    );
}

#[test]
fn prune_forgets_what_no_rule_needs() {
    over_book(
        "
        leg tok   tokens 61x1 soft 1000
        leg calls calls  held soft 9
        leg day   tokens day  hard 1000
        0       reserve 1 tok=10~key calls day=10 => admit
        1       settle 1 20 0 20 learn:10
        1       adjust 1 day 0 5
        1       reserve 2 calls life:999999       => admit 1
        1800    prune             => tombstones 0 adjusts 0 estimators 0 accounts 1   # the window is empty
        1801    prune             => tombstones 1 adjusts 1 estimators 0 accounts 0
        604800  prune             => tombstones 0 adjusts 0 estimators 0 accounts 0
        604801  prune             => tombstones 0 adjusts 0 estimators 2 accounts 0
        691200  accounts          => 2                    # a live leg keeps its account
        691200  prune             => tombstones 0 adjusts 0 estimators 0 accounts 1
        691200  book calls        => posted 0 held 1
        691200  reserve 3 tok=10 day=10 => admit 10 10
        ",
    );
}

#[test]
fn reset_tells_when_an_account_is_empty() {
    over_book(
        "
        leg rpm requests 61x1 soft 5
        leg tok tokens 61x1 soft 500
        leg day tokens day hard 500
        leg life tokens life hard 500
        0   reserve 1 rpm tok=10 day=10 life=10
        5   reset rpm   => 56
        5   reset tok   => 61       # as if the hold were posted now
        5   reset day   => 86395
        5   reset life  => never
        6   settle 1 1 10 10 10
        7   reset tok   => 60
        70  reset tok   => 0
        ",
    );
}

#[test]
fn l12_a_denied_shard_learns_of_a_step_back() {
    over_book(
        "
        leg calls calls held soft 1
        0      reserve 1 calls  => admit 1
        -86400 reserve 2 calls  => deny calls busy 1 likely    # leaves no event
        -86400 prune            => tombstones 0
        -86386 due              =>
        -86385 expire 1         => expired
        -86385 reserve 2 calls  => admit 1
        ",
    );
}
