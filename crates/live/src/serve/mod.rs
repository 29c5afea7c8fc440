//! The live view as a web page. A thread for each connection draws it.

mod address;
mod http;

use crate::page::{POLICY, SCRIPT, figures, page};
use crate::{LiveStatus, Result, prometheus};
use address::Address;
use http::{Answer, Request};
use std::net::TcpListener;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use towers_callbacks::{Observer, RunInfo};

/// Connections at a time; more are closed at once.
const CONNECTIONS: usize = 16;

/// The script asks once a second. A page that did within this time is open when the run ends.
const WATCHED: Duration = Duration::from_secs(3);
/// The longest wait for an open page to ask how the run ended, and the time for others to do so too.
const LAST_QUESTION: Duration = Duration::from_secs(5);
const OTHERS: Duration = Duration::from_millis(1200);

/// A bound address, from which nothing is answered yet.
pub struct Server {
    listener: TcpListener,
    address: Address,
}

impl Server {
    /// Binds an address: a port of this machine, a host, or HOST:PORT. Without one it is port 8686 of this machine, or
    /// any free port if that is taken.
    ///
    /// # Errors
    /// [`Error::Address`](crate::Error::Address) and [`Error::Listen`](crate::Error::Listen).
    pub fn bind(text: Option<&str>) -> Result<Self> {
        let (listener, address) = Address::bind(text.map(address::parse).transpose()?)?;
        Ok(Server { listener, address })
    }

    /// The URL of the page. It has a token unless only this machine can reach the address.
    pub fn url(&self) -> String {
        self.address.url()
    }

    /// The page about the run in a folder, under a name. Answers begin with the run.
    pub fn page(self, run: PathBuf, name: String, status: LiveStatus) -> Page {
        let Server { listener, address } = self;
        let listener = Mutex::new(Some(listener));
        Page(Arc::new(Shared { run, name, address, listener, status, now: Mutex::default() }))
    }
}

/// The page of a run: an [`Observer`], shared with the threads that answer. It comes after the observers whose files it
/// shows.
#[derive(Clone)]
pub struct Page(Arc<Shared>);

struct Shared {
    run: PathBuf,
    name: String,
    address: Address,
    /// Until the run begins.
    listener: Mutex<Option<TcpListener>>,
    status: LiveStatus,
    now: Mutex<Now>,
}

#[derive(Default)]
struct Now {
    ended: Option<String>,
    /// When figures were last asked for.
    asked: Option<Instant>,
    /// Whether figures were asked for since the run ended.
    told: bool,
}

/// Answers until the process ends.
fn accept(listener: &TcpListener, page: &Page) {
    // Each connection has a clone.
    let open = Arc::new(());
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            // Such as a lack of file descriptors, which may pass.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        if Arc::strong_count(&open) > CONNECTIONS {
            continue;
        }
        let (page, counted) = (page.clone(), Arc::clone(&open));
        // A connection without a thread is closed.
        let _ = thread::Builder::new().name("answer".into()).spawn(move || {
            http::answer(&stream, |request| page.respond(request));
            drop(counted);
        });
    }
}

impl Page {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn respond(&self, request: &Request<'_>) -> Answer {
        let path = match self.0.address.admit(request.path, request.host) {
            Ok(path) => path,
            Err(refusal) => return refusal,
        };
        match path {
            "/" => {
                let (ended, status) = (self.now().ended.clone(), self.0.status.now());
                match page(&self.0.run, &self.0.name, &status, ended.as_deref()) {
                    Ok(page) => Answer::html(page).policy(POLICY),
                    Err(error) => Answer::text(500, &error.to_string()),
                }
            }
            "/figures" => {
                let ended = {
                    let mut now = self.now();
                    (now.asked, now.told) = (Some(Instant::now()), now.ended.is_some());
                    now.ended.clone()
                };
                Answer::html(figures(&self.0.status.now(), ended.as_deref()))
            }
            "/metrics" => {
                let ended = self.now().ended.is_some();
                Answer::figures(prometheus::figures(&self.0.name, &self.0.status.now(), ended))
            }
            "/live.js" => Answer::script(SCRIPT),
            _ => Answer::text(404, "There is no such page."),
        }
    }

    /// Says how the run ended, and gives open pages the time to ask.
    pub fn end(&self, how: &str) {
        let is_watched = {
            let mut now = self.now();
            now.ended = Some(how.to_owned());
            now.asked.is_some_and(|asked| asked.elapsed() < WATCHED)
        };
        let began = Instant::now();
        while is_watched && began.elapsed() < LAST_QUESTION {
            thread::sleep(Duration::from_millis(50));
            if self.now().told {
                return thread::sleep(OTHERS);
            }
        }
    }
}

impl Observer for Page {
    fn on_begin(&mut self, _: &RunInfo<'_>) -> towers_callbacks::Result<()> {
        let listener = self.0.listener.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(listener) = listener else { return Ok(()) };
        let page = self.clone();
        let thread = thread::Builder::new().name("serve".into()).spawn(move || accept(&listener, &page));
        thread.map(drop).map_err(towers_callbacks::Error::other)
    }
}
