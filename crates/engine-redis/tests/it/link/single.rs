//! One server.

use tollbook_engine_redis::Script;
use tollbook_redis_world::Server;

use super::{COUNT, count, link};

#[tokio::test]
async fn a_script_is_brought_and_called() {
    let server = Server::redis();
    let link = link(&server);
    let script = Script::new(COUNT);
    assert_eq!(count(&link, &script, "a").await, Ok(1));
    assert_eq!(count(&link, &script, "a").await, Ok(2));
}
