import { publishedFacts } from "./table.ts";

export const testFacts = publishedFacts();
