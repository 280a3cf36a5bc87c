//! One connection: calls one after another, each read, recorded, answered, and watched until the next one.
//!
//! Invariants: a call is in the record before its body is read; paths under `/__` are control calls and leave no trace.
//! Whatever goes wrong on a connection ends that connection and nothing else.

use std::sync::Arc;

use bytes::BytesMut;
use tokio::net::TcpStream;

use crate::ask::Ask;
use crate::control;
use crate::http::{Conn, Gone, ReadError, RequestHead};
use crate::plan;
use crate::play::{After, Player};
use crate::record::{Afterwards, Dialect, Ending, Recorded, Usage};
use crate::upstream::Shared;

pub(crate) async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    let number = shared.connected();
    let mut conn = Conn::new(stream);
    let mut last_order = None;
    let mut close_idle = shared.idle_closer();
    loop {
        close_idle.mark_unchanged();
        let came = tokio::select! {
            came = conn.wait_for_call() => came,
            _ = close_idle.changed() => return,
        };
        if let Some(order) = last_order.take() {
            let afterwards = match came {
                Ok(()) => Afterwards::NextCall,
                Err(gone) => gone.into(),
            };
            shared.update(order, |call| call.afterwards = afterwards);
        }
        if came.is_err() {
            return;
        }
        match call(&mut conn, &shared, number).await {
            Some((order, After::KeepAlive)) => last_order = order,
            Some((Some(order), After::Drop)) => {
                linger(&mut conn, &shared, order).await;
                return;
            }
            Some((None, After::Drop)) | None => return,
        }
    }
}

/// The end of a connection that we close: our FIN first, then what the client makes of it.
async fn linger(conn: &mut Conn, shared: &Shared, order: u64) {
    let reset = shared.lock().record.call_mut(order).is_none_or(|call| call.ending == Ending::Reset);
    if reset || conn.known_gone().is_some() {
        return;
    }
    let _ = tokio::io::AsyncWriteExt::shutdown(&mut conn.stream).await;
    let gone = conn.gone().await;
    shared.update(order, |call| call.afterwards = gone.into());
}

/// None: the connection ended without a call.
async fn call(conn: &mut Conn, shared: &Shared, number: u64) -> Option<(Option<u64>, After)> {
    let head = match conn.read_head().await {
        Ok(head) => head,
        Err(ReadError::Gone(_)) => return None,
        Err(ReadError::Bad(status, why)) => {
            let head = RequestHead::default();
            let order = shared.open(recorded(&head, number, shared.now_ms()));
            return Some((Some(order), refuse(conn, shared, order, &head, status, why).await));
        }
    };
    if control::is_control(&head.target) {
        return Some((None, control::answer(conn, shared, &head).await));
    }
    let order = shared.open(recorded(&head, number, shared.now_ms()));
    let body = match conn.read_body(&head).await {
        Ok(body) => body,
        Err(ReadError::Gone(gone)) => return Some((Some(order), cut(shared, order, gone))),
        Err(ReadError::Bad(status, why)) => {
            return Some((Some(order), refuse(conn, shared, order, &head, status, why).await));
        }
    };
    let ask = Ask::read(&head.method, &head.target, &head.headers, &body);
    note(shared, order, &ask, &body);
    let planned = shared.choose(&ask).and_then(|script| {
        shared.update(order, |call| call.label.clone_from(&script.label));
        let models = shared.lock().models.clone();
        plan::plan(&script, &ask, &models)
    });
    let after = match planned {
        Ok(plan) => {
            Player::new(shared, conn, order, ask.dialect, head.keep_alive).play(&plan, Ending::Complete).await
        }
        Err(why) => refuse(conn, shared, order, &head, 400, &why).await,
    };
    Some((Some(order), after))
}

fn note(shared: &Shared, order: u64, ask: &Ask, body: &BytesMut) {
    let text = String::from_utf8_lossy(body).into_owned();
    shared.update(order, |call| {
        call.body = text;
        call.body_bytes = ask.body_bytes;
        call.dialect = ask.dialect;
        call.model.clone_from(&ask.model);
        call.stream = ask.stream;
    });
}

async fn refuse(
    conn: &mut Conn,
    shared: &Shared,
    order: u64,
    head: &RequestHead,
    status: u16,
    why: &str,
) -> After {
    let ask = Ask::read(&head.method, &head.target, &head.headers, &[]);
    let plan = plan::refusal(&ask, status, why);
    Player::new(shared, conn, order, ask.dialect, false).play(&plan, Ending::Refused).await
}

fn cut(shared: &Shared, order: u64, gone: Gone) -> After {
    shared.update(order, |call| call.afterwards = gone.into());
    shared.end(order, Ending::RequestCut);
    After::Drop
}

fn recorded(head: &RequestHead, connection: u64, now_ms: u64) -> Recorded {
    Recorded {
        order: 0,
        connection,
        method: head.method.clone(),
        target: head.target.clone(),
        headers: head.headers.clone(),
        body: String::new(),
        body_bytes: 0,
        dialect: Dialect::OpenAi,
        model: None,
        stream: false,
        label: None,
        arrived_ms: now_ms,
        answered_ms: None,
        ended_ms: None,
        status: None,
        content_chunks: 0,
        bytes_sent: 0,
        generated: Usage::default(),
        usage_sent: Vec::new(),
        reported: None,
        usage_complete: false,
        stalled: false,
        gone_at_chunk: None,
        ending: Ending::Open,
        afterwards: Afterwards::Quiet,
    }
}
