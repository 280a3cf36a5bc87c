//! A server comes, goes and comes back.

use std::net::TcpStream;

use tollbook_sql_world::Server;

#[test]
fn a_server_that_was_killed_comes_back_where_it_was() {
    let mut server = Server::start();
    let addr = server.addr();
    assert!(TcpStream::connect(addr).is_ok());
    server.kill();
    assert!(TcpStream::connect(addr).is_err());
    server.start_again();
    assert_eq!(server.addr(), addr);
    assert!(TcpStream::connect(addr).is_ok());
}
