//! Sentinels: who is the primary of a service now.
//!
//! Invariants: the one that answered last is asked first; an answer is a hint, and who is named is asked for its role
//! before it is used.

use std::sync::{Mutex, PoisonError};

use redis::Value;

use super::connect::Connector;
use super::error::{Kind, LinkError};
use super::options::Address;

#[derive(Debug)]
pub(super) struct Sentinels {
    service: String,
    nodes: Mutex<Vec<Address>>,
    connector: Connector,
}

impl Sentinels {
    pub(super) fn new(service: String, nodes: Vec<Address>, connector: Connector) -> Self {
        Self { service, nodes: Mutex::new(nodes), connector }
    }

    pub(super) fn service(&self) -> &str {
        &self.service
    }

    /// Whom the first sentinel that answers names.
    pub(super) async fn primary(&self) -> Result<Address, LinkError> {
        let nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut ask = redis::cmd("SENTINEL");
        ask.arg("GET-MASTER-ADDR-BY-NAME").arg(&self.service);
        let mut trouble = LinkError::no(Kind::Refused, "no sentinel is named");
        for node in nodes {
            match self.connector.ask(&node, &ask).await {
                Ok(answer) => match named(&answer) {
                    Some(primary) => {
                        self.first_is(&node);
                        return Ok(primary);
                    }
                    None => {
                        trouble = LinkError::no(Kind::Refused, format!("{node} does not know the service"));
                    }
                },
                Err(error) => trouble = error,
            }
        }
        Err(trouble)
    }

    fn first_is(&self, node: &Address) {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        nodes.sort_by_key(|other| other != node);
    }
}

fn named(answer: &Value) -> Option<Address> {
    let Value::Array(parts) = answer else { return None };
    let [Value::BulkString(host), Value::BulkString(port)] = parts.as_slice() else { return None };
    let host = String::from_utf8(host.clone()).ok()?;
    let port = std::str::from_utf8(port).ok()?.parse().ok()?;
    Some(Address { host, port })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_without_trust() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let good = Value::Array(vec![text("10.0.0.1"), text("6379")]);
        assert_eq!(named(&good), Some(Address { host: "10.0.0.1".to_owned(), port: 6379 }));
        for bad in
            [Value::Nil, Value::Array(vec![]), Value::Array(vec![text("h"), text("70000")]), Value::Int(1)]
        {
            assert_eq!(named(&bad), None);
        }
    }
}
