"""Those who read: users and how they prove who they are, what each is subscribed to, has read, starred, tagged, and wants to be told.

One core of operations; the pages and the three APIs are dialects of it.
"""
