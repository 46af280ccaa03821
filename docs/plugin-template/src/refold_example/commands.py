"""A command of the session: /words. It gets the session and what was typed after its name."""


async def words(session, rest: str) -> str:
    said = session.view.conversation.user_messages
    count = sum(len(each.text.split()) for each in said)
    return f"You have written {count} {'word' if count == 1 else 'words'}."
