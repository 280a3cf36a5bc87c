//! The gateway in process: real sockets, the memory engine, a scripted provider that keeps its own record.

mod adm;
mod edge;
mod res;
mod smoke;
mod world;
