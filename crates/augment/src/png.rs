//! PNG files without compression: what a few small pictures to look at need (W3C, "Portable Network Graphics").

/// The file of a picture with `c` channels (1 to 4: grey, grey with opacity, RGB, RGB with opacity), row by row.
pub(crate) fn encode([h, w, c]: [usize; 3], pixels: &[u8]) -> Vec<u8> {
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    let color = [0, 0, 4, 2, 6][c.min(4)];
    let mut header = Vec::from((w as u32).to_be_bytes());
    header.extend((h as u32).to_be_bytes());
    header.extend([8, color, 0, 0, 0]);
    chunk(&mut file, b"IHDR", &header);
    // Every row begins with the number of its filter: none.
    let rows = pixels.chunks(w * c);
    let raw: Vec<u8> = rows.flat_map(|row| core::iter::once(0).chain(row.iter().copied())).collect();
    chunk(&mut file, b"IDAT", &stored(&raw));
    chunk(&mut file, b"IEND", &[]);
    file
}

/// A zlib stream of blocks that are stored as they are (RFC 1950, RFC 1951).
fn stored(raw: &[u8]) -> Vec<u8> {
    let mut stream = vec![0x78, 0x01];
    let blocks = raw.chunks(usize::from(u16::MAX));
    let last = blocks.len().saturating_sub(1);
    for (number, block) in blocks.enumerate() {
        let len = block.len() as u16;
        stream.push(u8::from(number == last));
        stream.extend(len.to_le_bytes());
        stream.extend((!len).to_le_bytes());
        stream.extend(block);
    }
    let (mut a, mut b) = (1_u32, 0_u32);
    for &byte in raw {
        a = (a + u32::from(byte)) % 65_521;
        b = (b + a) % 65_521;
    }
    stream.extend((b << 16 | a).to_be_bytes());
    stream
}

fn chunk(file: &mut Vec<u8>, name: &[u8; 4], data: &[u8]) {
    file.extend((data.len() as u32).to_be_bytes());
    let start = file.len();
    file.extend(name);
    file.extend(data);
    let sum = file[start..].iter().fold(u32::MAX, |sum, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| sum >> 1 ^ if sum & 1 == 1 { 0xEDB8_8320 } else { 0 })
    });
    file.extend((!sum).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_find_the_pixels_again() {
        for (shape, color) in [
            ([2, 3, 1], image::ColorType::L8),
            ([5, 4, 3], image::ColorType::Rgb8),
            ([200, 150, 4], image::ColorType::Rgba8),
        ] {
            let pixels: Vec<u8> =
                (0..shape.iter().product::<usize>()).map(|k| (k * 37 % 251) as u8).collect();
            let read = image::load_from_memory(&encode(shape, &pixels)).unwrap();
            assert_eq!(
                (read.height() as usize, read.width() as usize, read.color()),
                (shape[0], shape[1], color)
            );
            assert_eq!(read.into_bytes(), pixels);
        }
    }
}
