//! Unpacks an archive that may be hostile.
//!
//! Only the batch files that a layout lists are written, under fixed names, so no name in an archive leads
//! out of the folder. An archive with such a name, a link, a device or more data than CIFAR has is refused.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Component, Path};

use flate2::read::GzDecoder;
use tar::{Archive, Entry, EntryType};

use towers_files::open_regular;

use crate::error::{Error, Result};
use crate::kinds::Kind;
use crate::layout::Layout;
use crate::official::Format;

/// The most bytes an archive may unpack to; the official ones have 186 MB.
const MAX_UNPACKED: u64 = 320 << 20;
/// The most entries an archive may have; the official ones have 10.
const MAX_ENTRIES: usize = 100;
/// The most bytes of a file that we keep but don't read.
const MAX_EXTRA: u64 = 1 << 20;

/// Unpacks the archive at `path` into the empty folder `into` and returns its content. In errors the archive
/// is called `name`.
pub(crate) fn unpack(path: &Path, name: &str, kind: Kind, into: &Path) -> Result<Layout> {
    let (file, _) = open_regular(path)?;
    let refused = |reason: String| Error::Archive { archive: name.into(), reason };
    let unpacked = Capped { inner: GzDecoder::new(BufReader::new(file)), left: MAX_UNPACKED };
    let mut archive = Archive::new(unpacked);
    let mut found: Option<Layout> = None;
    for (k, entry) in archive.entries().map_err(|e| refused(e.to_string()))?.enumerate() {
        if k == MAX_ENTRIES {
            return Err(refused(format!("it has more than {MAX_ENTRIES} files")));
        }
        let mut entry = entry.map_err(|e| refused(e.to_string()))?;
        let Some(file_name) = safe_name(&entry).map_err(refused)? else { continue };
        let Some((layout, exact, most)) = expected(kind, &file_name) else { continue };
        if *found.get_or_insert(layout) != layout {
            return Err(refused("it mixes the binary and the python layout".into()));
        }
        if entry.size() > most || exact && entry.size() != most {
            return Err(refused(format!("`{file_name}` has {} bytes, expected {most}", entry.size())));
        }
        write(&mut entry, &into.join(&file_name), &refused)?;
    }
    // Reading to the end is what makes the decoder check gzip's own checksum.
    let mut rest = archive.into_inner();
    io::copy(&mut rest, &mut io::sink()).map_err(|e| refused(e.to_string()))?;
    let layout = found.ok_or_else(|| refused(format!("there is no {kind} in it")))?;
    match layout.files.batches.iter().find(|(file_name, _)| !into.join(file_name).is_file()) {
        Some((missing, _)) => Err(refused(format!("it lacks `{missing}`"))),
        None => Ok(layout),
    }
}

/// Unpacks files that were compressed by gzip one by one into the empty folder `into`, under the names of their
/// layout. In errors they are called `name`.
pub(crate) fn unpack_files(paths: &[&Path], name: &str, kind: Kind, into: &Path) -> Result<Layout> {
    let layout = Layout::in_pieces(kind).ok_or_else(|| {
        let reason = format!("{kind} is not in single files");
        Error::Archive { archive: name.into(), reason }
    })?;
    for (path, (file_name, ..)) in paths.iter().zip(layout.files.single) {
        let refused = |reason: String| Error::Archive {
            archive: name.into(),
            reason: format!("{file_name}.gz: {reason}"),
        };
        let (file, _) = open_regular(path)?;
        let unpacked = GzDecoder::new(BufReader::new(file));
        write(&mut Capped { inner: unpacked, left: MAX_UNPACKED }, &into.join(file_name), &refused)?;
    }
    Ok(layout)
}

/// The last part of the name of a regular file; nothing for a folder.
fn safe_name<R: Read>(entry: &Entry<'_, R>) -> Result<Option<String>, String> {
    let path = entry.path().map_err(|e| e.to_string())?;
    let shown = path.display();
    if !path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(format!("`{shown}` leads out of the folder"));
    }
    match entry.header().entry_type() {
        EntryType::Regular | EntryType::Continuous => {}
        EntryType::Directory | EntryType::XGlobalHeader => return Ok(None),
        other => return Err(format!("`{shown}` is neither a file nor a folder, but {other:?}")),
    }
    Ok(path.file_name().and_then(|name| name.to_str()).map(str::to_owned))
}

/// The layout that a file belongs to, and the size it has: that exactly, or that at most.
fn expected(kind: Kind, file_name: &str) -> Option<(Layout, bool, u64)> {
    Layout::all(kind).find_map(|layout| {
        let batch = layout.files.batches.iter().find(|(name, _)| *name == file_name);
        let size = batch.map(|&(_, images)| layout.file_bytes(images));
        let exact = layout.files.format == Format::Binary;
        let extra = layout.files.extras.contains(&file_name).then_some(MAX_EXTRA);
        size.map(|size| (layout, exact, size)).or(extra.map(|most| (layout, false, most)))
    })
}

/// Writes a new file; another one of that name in the same archive is an error.
fn write(entry: &mut impl Read, to: &Path, refused: &impl Fn(String) -> Error) -> Result<()> {
    let mut file = match File::create_new(to) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            return Err(refused(format!(
                "it has two files `{}`",
                to.file_name().unwrap_or_default().display()
            )));
        }
        other => other.map_err(Error::io("create", to))?,
    };
    let mut buffer = vec![0; 1 << 16];
    loop {
        // Reading and writing apart: a damaged archive is not a full disk.
        match entry.read(&mut buffer).map_err(|e| refused(e.to_string()))? {
            0 => break,
            n => io::Write::write_all(&mut file, &buffer[..n]).map_err(Error::io("write", to))?,
        }
    }
    file.sync_all().map_err(Error::io("write", to))
}

/// Refuses to continue after so many bytes of any kind: data, padding or tar's records.
struct Capped<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Capped<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.inner.read(buffer)?;
        self.left = self
            .left
            .checked_sub(n as u64)
            .ok_or_else(|| io::Error::other(format!("it unpacks to more than {MAX_UNPACKED} bytes")))?;
        Ok(n)
    }
}
