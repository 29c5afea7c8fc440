//! The system of a simulation: the same names as in the crate's own `system`.

use crate::network::{self, accept, add_handle, close_listener, drop_handle, listen, shut};
use crate::world::{may_switch, wait, with};
use core::ops::{Add, Deref, DerefMut};
use core::time::Duration;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::sync::{LockResult, TryLockError};

/// A point in virtual time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Instant(Duration);

impl Instant {
    pub(crate) fn now() -> Instant {
        Instant(with(|world| world.now))
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Instant::now().0.saturating_sub(self.0)
    }

    pub(crate) fn saturating_duration_since(&self, earlier: Instant) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, time: Duration) -> Instant {
        Instant(self.0 + time)
    }
}

pub(crate) fn sleep(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until && with(|world| world.processes[world.process()].alive) {
        wait(0, Some(until.0));
    }
}

pub(crate) fn spawn(_: &str, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    with(|world| world.spawn(world.process(), run));
    Ok(())
}

#[derive(Default)]
pub(crate) struct Mutex<T>(std::sync::Mutex<T>);

pub(crate) struct MutexGuard<'a, T> {
    of: &'a Mutex<T>,
    /// `None` after it is released.
    guard: Option<std::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Mutex<T> {
        Mutex(std::sync::Mutex::new(value))
    }

    fn key(&self) -> usize {
        core::ptr::from_ref(self).addr()
    }

    pub(crate) fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        may_switch();
        loop {
            match self.0.try_lock() {
                Ok(guard) => return Ok(MutexGuard { of: self, guard: Some(guard) }),
                // A process that ended within the lock.
                Err(TryLockError::Poisoned(poisoned)) => {
                    return Ok(MutexGuard { of: self, guard: Some(poisoned.into_inner()) });
                }
                Err(TryLockError::WouldBlock) => wait(self.key(), None),
            }
        }
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.guard.as_ref().expect("it is held")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.guard.as_mut().expect("it is held")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        drop(self.guard.take());
        with(|world| world.wake(self.of.key()));
    }
}

/// The address of a machine.
pub(crate) fn address(host: usize) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, host as u8 + 1).into()
}

/// The machine of an address.
fn host(address: IpAddr) -> usize {
    match address {
        IpAddr::V4(address) => usize::from(address.octets()[3]) - 1,
        IpAddr::V6(address) => panic!("{address} is no machine of a simulation"),
    }
}

pub(crate) struct TcpListener((usize, u16));

impl TcpListener {
    pub(crate) fn bind(address: SocketAddr) -> io::Result<TcpListener> {
        listen(address.port()).map(TcpListener)
    }

    pub(crate) fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        nonblocking.then_some(()).ok_or(ErrorKind::Unsupported.into())
    }

    pub(crate) fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let stream = TcpStream(accept(self.0)?);
        let peer = stream.peer_addr()?;
        Ok((stream, peer))
    }
}

impl Drop for TcpListener {
    fn drop(&mut self) {
        close_listener(self.0);
    }
}

pub(crate) struct TcpStream(usize);

impl TcpStream {
    pub(crate) fn connect_timeout(address: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        network::connect(host(address.ip()), address.port(), timeout).map(TcpStream)
    }

    pub(crate) fn try_clone(&self) -> io::Result<TcpStream> {
        add_handle(self.0);
        Ok(TcpStream(self.0))
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        let (host, port) = with(|world| world.network.peer(self.0 ^ 1));
        Ok(SocketAddr::new(address(host), port))
    }

    pub(crate) fn peer_addr(&self) -> io::Result<SocketAddr> {
        let (host, port) = with(|world| world.network.peer(self.0));
        Ok(SocketAddr::new(address(host), port))
    }

    pub(crate) fn set_nodelay(&self, _: bool) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        with(|world| world.network.end(self.0).nonblocking = nonblocking);
        Ok(())
    }

    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        with(|world| world.network.end(self.0).timeout = timeout);
        Ok(())
    }

    /// What is sent always finds room.
    pub(crate) fn set_write_timeout(&self, _: Option<Duration>) -> io::Result<()> {
        Ok(())
    }

    pub(crate) fn peek(&self, bytes: &mut [u8]) -> io::Result<usize> {
        network::read(self.0, bytes, false)
    }

    pub(crate) fn shutdown(&self, _: Shutdown) -> io::Result<()> {
        shut(self.0);
        Ok(())
    }
}

impl Read for &TcpStream {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        network::read(self.0, bytes, true)
    }
}

impl Write for &TcpStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        network::write(self.0, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for TcpStream {
    fn drop(&mut self) {
        drop_handle(self.0);
    }
}
