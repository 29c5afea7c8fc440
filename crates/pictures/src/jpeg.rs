//! JPEG files: whether they are whole, and what the decoder does otherwise than libjpeg, which Pillow has.

use std::iter;
use std::ops::Range;

/// The marker of a scan, after which compressed data follow.
const SCAN: u8 = 0xda;

/// What the head of a file says of the colours.
#[derive(Default)]
struct Head {
    /// Of each component: its name, and how often it is sampled in a row and a column of a block.
    components: Vec<(u8, [u8; 2])>,
    /// Whether it is a JFIF file, whose colours are YCbCr.
    jfif: bool,
    /// Where Adobe's mark for the colours is.
    adobe: Option<usize>,
}

impl Head {
    fn of(jpeg: &[u8]) -> Head {
        let mut head = Head::default();
        for (marker, place) in segments(jpeg) {
            let content = &jpeg[place.clone()];
            match marker {
                0xe0 if content.starts_with(b"JFIF\0") => head.jfif = true,
                0xee if content.starts_with(b"Adobe") && content.len() >= 12 => {
                    head.adobe = Some(place.start + 11);
                }
                // The frame, of any process but lossless and hierarchical ones, which are not decoded.
                0xc0..=0xc2 | 0xc9 | 0xca => {
                    let parts = content.get(6..).unwrap_or_default().as_chunks::<3>().0;
                    head.components = parts.iter().map(|&[name, of, _]| (name, [of >> 4, of & 15])).collect();
                }
                _ => {}
            }
        }
        head
    }
}

/// Mends a file whose colours the decoder takes for others than libjpeg does.
///
/// # Errors
/// Why it can't be decoded, where that is not possible.
pub(crate) fn mend(jpeg: &mut [u8]) -> Result<(), String> {
    let Head { components, jfif, adobe } = Head::of(jpeg);
    if let Some(((_, first), others)) = components.split_first()
        && others.iter().any(|(_, other)| other[0] > first[0] || other[1] > first[1])
    {
        return Err("its colours are sampled more finely than its brightness; save it anew".to_owned());
    }
    let mark = adobe.map(|place| jpeg[place]);
    let rgb = components.iter().map(|(name, _)| *name).eq(*b"RGB");
    if rgb && (jfif || mark.is_some_and(|mark| mark != 0)) {
        return Err("its components are called R, G and B, but its head says YCbCr; save it anew".to_owned());
    }
    if let Some(place) = adobe {
        jpeg[place] = match (components.len(), jpeg[place]) {
            (3, 0) if !jfif => 0,
            (3, _) => 1,
            (4, 1..) => 2,
            (_, mark) => mark,
        };
    }
    Ok(())
}

/// The segments before the first scan, of ITU-T T.81, B.1.1: the marker, and where the content is.
fn segments(jpeg: &[u8]) -> impl Iterator<Item = (u8, Range<usize>)> {
    let mut at = 2;
    iter::from_fn(move || {
        // Any number of bytes 0xff may fill the space before a marker.
        while jpeg.get(at) == Some(&0xff) && jpeg.get(at + 1) == Some(&0xff) {
            at += 1;
        }
        let [0xff, marker, high, low] = *jpeg.get(at..at + 4)?.first_chunk()? else { return None };
        let (start, end) = (at + 4, at + 2 + usize::from(u16::from_be_bytes([high, low])));
        at = end;
        (marker != SCAN && start <= end && end <= jpeg.len()).then_some((marker, start..end))
    })
}

/// Whether a JPEG file has the marker of its end, of ITU-T T.81, B.1.1: that of a preview within one of its
/// segments is another's.
pub(crate) fn comes_to_its_end(jpeg: &[u8]) -> bool {
    let mut rest = jpeg;
    loop {
        let skipped = match rest {
            [0xff, 0xd9, ..] => return true,
            // A marker by itself, or a byte of compressed data that looks like one.
            [0xff, 0x00 | 0x01 | 0xd0..=0xd8, ..] => 2,
            [0xff, 0x02..=0xfe, high, low, ..] => 2 + usize::from(u16::from_be_bytes([*high, *low])),
            // Compressed data, or padding.
            [_, after @ ..] => 1 + after.iter().position(|&byte| byte == 0xff).unwrap_or(after.len()),
            _ => return false,
        };
        rest = rest.get(skipped..).unwrap_or_default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jpeg_ends_where_its_own_marker_is() {
        const START: &[u8] = &[0xff, 0xd8];
        const END: &[u8] = &[0xff, 0xd9];
        // A segment with a whole file in it, the header of a scan, and compressed data with a restart.
        let segment = [&[0xff, 0xe1, 0, 6], START, END].concat();
        let scan = [0xff, 0xda, 0, 4, 1, 2, 7, 0xff, 0x00, 8, 0xff, 0xd0, 9];
        let whole = [START, &segment, &[0xff], &scan, END].concat();
        assert!(comes_to_its_end(&whole));
        assert!(comes_to_its_end(&[&whole[..], &[0; 9]].concat()), "something may follow");
        for len in 0..whole.len() {
            assert!(!comes_to_its_end(&whole[..len]), "{len} bytes");
        }
    }
}
