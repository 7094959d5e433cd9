// loaded with the first download; by name, because a bundle gives the dynamic import of a CommonJS package only its default export
export { Agent, request } from "undici";
