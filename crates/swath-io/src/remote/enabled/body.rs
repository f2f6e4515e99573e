//! A body as the frames that arrived, so that it is copied only once, to its destination.

use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};
use object_store::client::HttpError;

/// The frames of a body.
#[derive(Debug, Default)]
pub(crate) struct ReceivedBody {
    frames: VecDeque<Bytes>,
    len: u64,
}

impl ReceivedBody {
    pub(crate) fn push(&mut self, frame: Bytes) {
        self.len += frame.len() as u64;
        self.frames.push_back(frame);
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Fills `target` with the bytes after the first `skip`. Returns whether there were enough.
    pub(crate) fn copy_to(&self, mut skip: usize, mut target: &mut [u8]) -> bool {
        for frame in &self.frames {
            let found = frame.get(skip.min(frame.len())..).unwrap_or_default();
            skip = skip.saturating_sub(frame.len());
            let len = found.len().min(target.len());
            let (front, rest) = std::mem::take(&mut target).split_at_mut(len);
            front.copy_from_slice(found.get(..front.len()).unwrap_or_default());
            target = rest;
        }
        target.is_empty()
    }

    /// The whole body, copied if it has several frames.
    pub(crate) fn into_bytes(mut self) -> Bytes {
        match self.frames.len() {
            0 => Bytes::new(),
            1 => self.frames.pop_front().unwrap_or_default(),
            _ => {
                let mut all = BytesMut::new();
                for frame in &self.frames {
                    all.extend_from_slice(frame);
                }
                all.freeze()
            }
        }
    }
}

impl From<Bytes> for ReceivedBody {
    fn from(bytes: Bytes) -> Self {
        let mut frames = Self::default();
        frames.push(bytes);
        frames
    }
}

impl Body for ReceivedBody {
    type Data = Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = self.frames.pop_front();
        self.len -= frame.as_ref().map_or(0, |frame| frame.len() as u64);
        Poll::Ready(frame.map(|frame| Ok(Frame::data(frame))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.len)
    }
}

/// The bytes of a request's body.
pub(crate) async fn collect(mut body: object_store::client::HttpRequestBody) -> Result<Bytes, HttpError> {
    let mut frames = ReceivedBody::default();
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        if let Ok(frame) = frame?.into_data() {
            frames.push(frame);
        }
    }
    Ok(frames.into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_fill_the_bytes_they_reach() {
        let mut frames = ReceivedBody::from(Bytes::from_static(b"ab"));
        frames.push(Bytes::from_static(b"c"));
        let mut target = [0; 3];
        assert!(frames.copy_to(0, &mut target));
        assert_eq!(&target, b"abc");
        let mut target = [0; 2];
        assert!(frames.copy_to(1, &mut target));
        assert_eq!(&target, b"bc");
        assert!(frames.copy_to(3, &mut []) && !frames.copy_to(0, &mut [0; 4]) && !frames.copy_to(2, &mut [0; 2]));
        assert_eq!(frames.into_bytes(), Bytes::from_static(b"abc"));
    }
}
