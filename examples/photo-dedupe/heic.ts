import sharp from "sharp";

/** A HEIC file of 64 × 48 pixels, as phones write them: HEVC. */
export const heicSample = Buffer.from(
  "AAAAHGZ0eXBoZWljAAAAAG1pZjFoZWljbWlhZgAAAX1tZXRhAAAAAAAAACFoZGxyAAAAAAAAAABwaWN0AAAAAAAAAAAAAAAAAAAAACJpbG9jAAAAAERAAA" +
    "EAAQAAAAABoQABAAAAAAAAAB0AAAAjaWluZgAAAAAAAQAAABVpbmZlAgAAAAABAABodmMxAAAAAA5waXRtAAAAAAABAAAA/WlwcnAAAADdaXBjbwAAAHZo" +
    "dmNDAQNwAAAAkAAAAAAAHvAA/P34+AAADwNgAAEAGEABDAH//wNwAAADAJAAAAMAAAMAHroCQGEAAQAqQgEBA3AAAAMAkAAAAwAAAwAeoCCBBZbq5Ka5uA" +
    "hoMCAAAAMDIAAAAwAhYgABAAZEAcFzwIkAAAATY29scm5jbHgAAQANAAaAAAAAFGlzcGUAAAAAAAAAQAAAAEAAAAAoY2xhcAAAAEAAAAABAAAAMAAAAAEA" +
    "AAAAAAAAAv////AAAAACAAAAEHBpeGkAAAAAAwgICAAAABhpcG1hAAAAAAAAAAEAAQWBAgMFhAAAACVtZGF0AAAAGSgBrxOA9SeBP//YlR/+3Pnh93Z1+e" +
    "fLU8A=",
  "base64",
);

/**
 * Whether libvips decodes HEIC. It says that it reads the container, which AVIF has too, whether or not there is a decoder
 * for HEVC: so one is decoded. The libvips that comes with sharp has none; one of the system may.
 */
export const readsHeic = await sharp(heicSample)
  .raw()
  .toBuffer()
  .then(
    () => true,
    () => false,
  );
