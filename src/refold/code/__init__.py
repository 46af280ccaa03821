"""What the source code of a workspace says: asks language servers, and parses with grammars."""
