//! A small HTTP server on the loopback interface that behaves as badly as a test asks for.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What to answer.
#[derive(Clone)]
pub struct Reply {
    pub status: &'static str,
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
    /// Close the connection after so many bytes of the body.
    pub cut_after: Option<usize>,
    /// Send pieces of so many bytes with a pause after each.
    pub pace: Option<(usize, Duration)>,
}

impl Reply {
    pub fn new(status: &'static str, body: impl Into<Vec<u8>>) -> Reply {
        let body = body.into();
        let headers = vec![("Content-Length", body.len().to_string())];
        Reply { status, headers, body, cut_after: None, pace: None }
    }

    pub fn ok(body: impl Into<Vec<u8>>) -> Reply {
        Reply::new("200 OK", body)
    }

    /// The bytes of `file` from `start` on, as a server that knows ranges answers.
    pub fn range(file: &[u8], start: Option<usize>) -> Reply {
        let Some(start) = start else { return Reply::ok(file) };
        if start >= file.len() {
            let reply = Reply::new("416 Range Not Satisfiable", "");
            return reply.header("Content-Range", format!("bytes */{}", file.len()));
        }
        let range = format!("bytes {start}-{}/{}", file.len() - 1, file.len());
        Reply::new("206 Partial Content", &file[start..]).header("Content-Range", range)
    }

    pub fn header(mut self, name: &'static str, value: String) -> Reply {
        self.headers.push((name, value));
        self
    }

    pub fn cut_after(self, bytes: usize) -> Reply {
        Reply { cut_after: Some(bytes), ..self }
    }

    pub fn pace(self, bytes: usize, pause: Duration) -> Reply {
        Reply { pace: Some((bytes, pause)), ..self }
    }

    fn send(&self, stream: &mut TcpStream) -> std::io::Result<()> {
        let headers: String =
            self.headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        write!(stream, "HTTP/1.1 {}\r\n{headers}Connection: close\r\n\r\n", self.status)?;
        let body = &self.body[..self.cut_after.unwrap_or(usize::MAX).min(self.body.len())];
        let (size, pause) = self.pace.unwrap_or((1 << 16, Duration::ZERO));
        for piece in body.chunks(size) {
            stream.write_all(piece)?;
            thread::sleep(pause);
        }
        Ok(())
    }
}

/// Serves until it is dropped.
pub struct Server {
    port: u16,
    stop: Arc<AtomicBool>,
    starts: Arc<Mutex<Vec<Option<usize>>>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// `answer` gets the number of the request, from 0, and the first byte of the range that it asks for.
    pub fn new(answer: impl Fn(usize, Option<usize>) -> Reply + Send + 'static) -> Server {
        Server::with_paths(move |request, _, start| answer(request, start))
    }

    /// `answer` also gets the path that is asked for, such as `/mnist/t10k-labels-idx1-ubyte.gz`.
    pub fn with_paths(answer: impl Fn(usize, &str, Option<usize>) -> Reply + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (stop, starts) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (stopped, seen) = (stop.clone(), starts.clone());
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::SeqCst) {
                    return;
                }
                let mut stream = stream.unwrap();
                let Some((path, start)) = read_request(&stream) else { continue };
                seen.lock().unwrap().push(start);
                let request = seen.lock().unwrap().len() - 1;
                // The client may have gone; that is its right.
                let _ = answer(request, &path, start).send(&mut stream);
            }
        });
        Server { port, stop, starts, thread: Some(thread) }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/cifar.tar.gz", self.port)
    }

    /// The address of a folder.
    pub fn folder(&self) -> String {
        format!("http://127.0.0.1:{}/mnist/", self.port)
    }

    /// For each request the first byte that it asked for, if it asked for a range.
    pub fn starts(&self) -> Vec<Option<usize>> {
        self.starts.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The path, and the first byte of the range that the request asks for; nothing if there is no request.
fn read_request(stream: &TcpStream) -> Option<(String, Option<usize>)> {
    let mut lines = BufReader::new(stream).lines();
    let path = lines.next()?.ok()?.split(' ').nth(1)?.to_owned();
    let mut start = None;
    for line in lines {
        let line = line.ok()?.to_ascii_lowercase();
        if line.is_empty() {
            return Some((path, start));
        }
        if let Some(range) = line.strip_prefix("range: bytes=") {
            start = range.strip_suffix('-').and_then(|start| start.parse().ok());
        }
    }
    None
}
