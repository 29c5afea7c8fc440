use super::Secret;
use super::secret::mac;
use hmac::Mac;

/// The length of the authentication code after every message.
pub(super) const TAG: usize = 32;

/// One direction of a connection: encrypts and authenticates numbered messages.
///
/// The keys are HMACs of the direction and both sides' nonces under the secret. So a message can't be
/// replayed into another connection or direction. The key stream is HMAC-SHA256 of the message's number and a
/// counter. The code covers the number, the length and the encrypted bytes.
pub(super) struct Seal {
    encryption: [u8; 32],
    authentication: [u8; 32],
    number: u64,
}

impl Seal {
    pub(super) fn new(secret: &Secret, direction: &[u8], nonces: &[u8; 64]) -> Seal {
        let key = |purpose: &[u8]| secret.authenticate(&[b"towers 1 ", purpose, direction, nonces]);
        Seal { encryption: key(b"encryption "), authentication: key(b"authentication "), number: 0 }
    }

    /// Encrypts the next message in place, and returns its code.
    pub(super) fn close(&mut self, message: &mut [u8]) -> [u8; TAG] {
        self.mask(message);
        let code = self.code(message).finalize().into_bytes().into();
        self.number += 1;
        code
    }

    /// Decrypts the next message in place. False if it is not authentic.
    pub(super) fn open(&mut self, message: &mut [u8], code: &[u8; TAG]) -> bool {
        if self.code(message).verify_slice(code).is_err() {
            return false;
        }
        self.mask(message);
        self.number += 1;
        true
    }

    fn code(&self, message: &[u8]) -> hmac::Hmac<sha2::Sha256> {
        let (number, length) = (self.number.to_le_bytes(), (message.len() as u64).to_le_bytes());
        mac(&self.authentication, &[&number, &length, message])
    }

    fn mask(&self, message: &mut [u8]) {
        for (block, bytes) in message.chunks_mut(32).enumerate() {
            let (number, counter) = (self.number.to_le_bytes(), (block as u64).to_le_bytes());
            let stream = mac(&self.encryption, &[&number, &counter]).finalize().into_bytes();
            bytes.iter_mut().zip(stream).for_each(|(byte, key)| *byte ^= key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seal(secret: &str, direction: &[u8]) -> Seal {
        Seal::new(&Secret::new(secret).unwrap(), direction, &[5; 64])
    }

    #[test]
    fn only_the_same_secret_direction_and_number_open() {
        let text = *b"a message that is longer than one block of the key stream";
        let mut sealed = text;
        let code = seal("0123456789abcdef", b"there").close(&mut sealed);
        assert_ne!(sealed, text);
        let opens = |mut seal: Seal, mut message: Vec<u8>| seal.open(&mut message, &code).then_some(message);
        assert_eq!(opens(seal("0123456789abcdef", b"there"), sealed.to_vec()), Some(text.to_vec()));
        assert_eq!(opens(seal("0123456789abcdeF", b"there"), sealed.to_vec()), None);
        assert_eq!(opens(seal("0123456789abcdef", b"back"), sealed.to_vec()), None);
        let mut later = seal("0123456789abcdef", b"there");
        later.close(&mut []);
        assert_eq!(opens(later, sealed.to_vec()), None, "a message is played back");
        for bit in 0..sealed.len() * 8 {
            let mut damaged = sealed.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(opens(seal("0123456789abcdef", b"there"), damaged), None);
        }
    }
}
