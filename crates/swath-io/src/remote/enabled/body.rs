//! A body as the pieces that arrived, so that it is copied only once, to its destination.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use object_store::client::HttpError;

/// The pieces of a body.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    pieces: VecDeque<Bytes>,
    len: u64,
}

impl Pieces {
    pub(crate) fn push(&mut self, piece: Bytes) {
        self.len += piece.len() as u64;
        self.pieces.push_back(piece);
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `target` with the bytes after the first `skip`. Returns whether there were enough.
    pub(crate) fn copy_to(&self, mut skip: usize, mut target: &mut [u8]) -> bool {
        for piece in &self.pieces {
            let found = piece.get(skip.min(piece.len())..).unwrap_or_default();
            skip = skip.saturating_sub(piece.len());
            let len = found.len().min(target.len());
            let (front, rest) = std::mem::take(&mut target).split_at_mut(len);
            front.copy_from_slice(found.get(..front.len()).unwrap_or_default());
            target = rest;
        }
        target.is_empty()
    }

    /// The whole body, copied if it has several pieces.
    pub(crate) fn into_bytes(mut self) -> Bytes {
        match self.pieces.len() {
            0 => Bytes::new(),
            1 => self.pieces.pop_front().unwrap_or_default(),
            _ => {
                let mut all = BytesMut::new();
                for piece in &self.pieces {
                    all.extend_from_slice(piece);
                }
                all.freeze()
            }
        }
    }
}

impl From<Bytes> for Pieces {
    fn from(bytes: Bytes) -> Self {
        let mut pieces = Self::default();
        pieces.push(bytes);
        pieces
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let piece = self.pieces.pop_front();
        self.len -= piece.as_ref().map_or(0, |piece| piece.len() as u64);
        Poll::Ready(piece.map(|piece| Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len)
    }
}

/// The bytes of a request's body.
pub(crate) async fn collect(mut body: object_store::client::HttpRequestBody) -> Result<Bytes, HttpError> {
    let mut pieces = Pieces::default();
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        if let Ok(piece) = frame?.into_data() {
            pieces.push(piece);
        }
    }
    Ok(pieces.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_fill_what_they_reach() {
        let mut pieces = Pieces::from(Bytes::from_static(b"ab"));
        pieces.push(Bytes::from_static(b"c"));
        let mut target = [0; 3];
        assert!(pieces.copy_to(0, &mut target));
        assert_eq!(&target, b"abc");
        let mut target = [0; 2];
        assert!(pieces.copy_to(1, &mut target));
        assert_eq!(&target, b"bc");
        assert!(pieces.copy_to(3, &mut []) && !pieces.copy_to(0, &mut [0; 4]) && !pieces.copy_to(2, &mut [0; 2]));
        assert_eq!(pieces.into_bytes(), Bytes::from_static(b"abc"));
    }
}
