/**
 * How long open connections are left alone at the start of a stop, in milliseconds: a request may be on its way that the
 * process has not read yet. It gets an answer; a connection that is cut gives its client a reset.
 */
export const quietMs = 300;
