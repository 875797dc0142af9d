//! A way to a server on which every connection breaks after a while, in the middle of whatever it carries.

use std::{
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

/// Shorter than a task runs, longer than a list takes.
const LIFE: Duration = Duration::from_secs(2);

/// Where `server` is to be reached from now on, until the process ends.
pub fn relay(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let (client, server) = (client.unwrap(), TcpStream::connect(server).unwrap());
            let ways = [
                (client.try_clone().unwrap(), server.try_clone().unwrap()),
                (server.try_clone().unwrap(), client.try_clone().unwrap()),
            ];
            for (mut from, mut to) in ways {
                // Either end may go first.
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
            thread::spawn(move || {
                thread::sleep(LIFE);
                let _ = client.shutdown(Shutdown::Both);
                let _ = server.shutdown(Shutdown::Both);
            });
        }
    });
    address
}
