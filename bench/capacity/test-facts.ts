import { publishedFacts } from "./published-facts.ts";

export const testFacts = publishedFacts();
